#!/usr/bin/env bash
# Installs the packages that building Shardwise needs, on Debian 12 or newer and Ubuntu 22.04 or
# newer, as root or through sudo. Installs only missing packages. The list is packages.txt beside
# this script.
#
#   tools/setup.sh [GROUP...]     GROUP is build, python, libtorch, test, fresh, site, pictures,
#                                 release or ci
#
# Without a GROUP: build libtorch.
#
# Other scripts source this file and call its functions.
set -euo pipefail
unset CDPATH # if CDPATH is set, cd prints

SHARDWISE_SOURCE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

heading() { printf '\n== %s\n' "$*"; }
say() { printf '%s\n' "$*"; }
fail() {
  printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

packages_of() {  # GROUP...
  local group
  for group in "$@"; do
    awk -v group="$group" '$1 == group { print $2 }' "$SHARDWISE_SOURCE_DIR/tools/packages.txt"
  done
}

# The package's architecture does not matter.
is_installed() {  # PACKAGE
  [[ " $(dpkg-query -W -f '${db:Status-Status} ' "$1" 2>/dev/null)" == *' installed '* ]]
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  else
    sudo "$@"
  fi
}

# Retries, since networks and mirrors fail now and then.
try_thrice() {  # COMMAND...
  local pause
  for pause in 5 20; do
    "$@" && return 0
    say "failed; trying again in $pause s: $*"
    sleep "$pause"
  done
  "$@"
}

# Prints the version of PACKAGE that apt would install; prints nothing if apt does not know the
# package.
candidate_of() {  # PACKAGE
  local version
  version=$(apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" { print $2 }')
  [[ $version == '(none)' ]] || printf '%s' "$version"
}

# apt's lists are fetched once, and only if needed: a fresh container has none.
PACKAGE_LISTS_FRESH=
refresh_package_lists() {  # [PACKAGE...]: packages that apt must know afterwards
  [[ -z $PACKAGE_LISTS_FRESH ]] || return 0
  say "fetching the lists of packages"
  # apt-get only warns of lists that it could not fetch, which may not be needed: check the
  # packages.
  try_thrice update_package_lists "$@" ||
    fail "apt does not know all of: $*; check the network and apt's sources (see above), and on" \
      "Ubuntu turn 'universe' on: add-apt-repository universe"
  PACKAGE_LISTS_FRESH=1
}

update_package_lists() {  # PACKAGE...
  local package
  as_root apt-get -q -q update || return 1
  for package in "$@"; do
    [[ -n $(candidate_of "$package") ]] || return 1
  done
}

apt_get_install() {  # PACKAGE...
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -q -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=600 \
    install --no-install-recommends "$@" >/dev/null
}

install_packages() {  # PACKAGE...
  local package missing=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0

  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
    fail "this is no Debian-like system; install by hand what ${missing[*]} are called here"
  [[ $(id -u) -eq 0 ]] || command -v sudo >/dev/null ||
    fail "neither root nor sudo; have an administrator run: apt-get install ${missing[*]}"
  refresh_package_lists "${missing[@]}"
  say "installing: ${missing[*]}"
  try_thrice apt_get_install "${missing[@]}" || fail "apt-get install failed: see its messages above"
  # Do not start the package's nginx, which would occupy port 80: the tests start their own.
  if [[ " ${missing[*]} " == *" nginx-light "* && -d /run/systemd/system ]]; then
    as_root systemctl disable --quiet --now nginx || true
  fi
}

install_groups() {  # GROUP...
  # shellcheck disable=SC2046  # one word a package
  install_packages $(packages_of "$@")
}

# True if the user points to a LibTorch by Torch_DIR or CMAKE_PREFIX_PATH.
names_libtorch() {
  [[ -z ${Torch_DIR:-} ]] || return 0
  local prefix prefixes
  IFS=: read -r -a prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do
    [[ ! -e $prefix/share/cmake/Torch/TorchConfig.cmake ]] || return 0
  done
  return 1
}

# True if CMake will find a LibTorch: the user's, or the distribution's. Installs the distribution's
# LibTorch if it is new enough.
have_libtorch() {
  if names_libtorch; then return 0; fi
  if ! is_installed libtorch-dev; then
    command -v apt-cache >/dev/null || return 1
    [[ -n $(candidate_of libtorch-dev) ]] || refresh_package_lists
    local version
    version=$(candidate_of libtorch-dev)
    [[ -n $version ]] && dpkg --compare-versions "$version" ge 1.13 || return 1
  fi
  install_groups libtorch
}

NO_LIBTORCH="this release has no package libtorch-dev of 1.13 or newer; unpack LibTorch from \
pytorch.org, export CMAKE_PREFIX_PATH=/path/to/libtorch, and run this again"

# shellcheck disable=SC2086  # a compiler may be several words, as "ccache g++"
compiler_major() { $1 -dumpversion | cut -d. -f1; }

# If the system's g++ is too old and a newer one is packaged too, exports CC and CXX for that one.
choose_compiler() {
  [[ -z ${CXX:-} ]] || return 0
  [[ $(compiler_major g++) -lt 12 ]] || return 0
  say "the system's g++ is older than 12: taking g++-12"
  install_packages g++-12
  export CC=gcc-12 CXX=g++-12
}

# Creates a virtual environment with the packages that pyproject.toml lists for building and
# testing, and with the named optional groups. If this is impossible, returns 1 and sets NO_PYTHON
# to the reason. Installed packages stay, so a second call takes a second.
NO_PYTHON=
make_python_environment() {  # FOLDER GROUP...
  local folder=$1 python=${SHARDWISE_PYTHON:-python3} wanted
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    NO_PYTHON="$python is older than 3.11, or missing; name another in SHARDWISE_PYTHON"
    return 1
  }
  [[ -x $folder/bin/python ]] || "$python" -m venv "$folder" || {
    NO_PYTHON="$python cannot make a virtual environment: see above"
    return 1
  }
  wanted=$("$folder/bin/python" - "$SHARDWISE_SOURCE_DIR/pyproject.toml" "${@:2}" <<'PYTHON'
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)
groups = project["project"]["optional-dependencies"]
wanted = project["build-system"]["requires"] + project["project"]["dependencies"]
for group in sys.argv[2:]:
    wanted += groups[group]
print("\n".join(wanted))
PYTHON
  )
  # One call for all: otherwise a package's version range might replace torch by another version.
  printf '%s\n' "$wanted" >"$folder/wanted.txt"
  if [[ -e $folder/installed.txt ]] && cmp -s "$folder/wanted.txt" "$folder/installed.txt"; then
    return 0
  fi
  say "installing into $(basename "$folder"):" $wanted
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$folder/wanted.txt" || {
    NO_PYTHON="pip cannot install what is needed: see above; is the package index within reach?"
    return 1
  }
  cp "$folder/wanted.txt" "$folder/installed.txt"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  [[ $# -gt 0 ]] || set -- build libtorch
  for group in "$@"; do
    [[ -n $(packages_of "$group") ]] || fail "no group '$group' in packages.txt"
    if [[ $group == libtorch ]]; then
      have_libtorch || fail "$NO_LIBTORCH"
    else
      install_groups "$group"
    fi
  done
  say "everything is installed"
fi
