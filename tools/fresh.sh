#!/usr/bin/env bash
# Tries the project on a machine that has nothing: makes a bare root of a Debian or Ubuntu release
# with debootstrap, clones the last commit into it, and runs commands there, with a clean
# environment and the release's own compiler, CMake and libraries.
#
#   tools/fresh.sh [--as-user] [--keep] [SUITE [COMMAND...]]
#
#   SUITE       bookworm (without any), trixie, or another that debootstrap knows and a mirror has
#   COMMAND     a line for bash, run in the clone; without any: tools/demo.sh, then tools/test.sh
#   --as-user   run them as an ordinary user who may use sudo, not as root
#   --keep      leave the root there, and say how to enter it
#
# Says how long each command took. Exits 0 if all of them did; the first that fails ends it.
#
# Needs root or sudo, about 8 GB in TMPDIR (/var/tmp by default), and a mirror: $SHARDWISE_MIRROR,
# else the one that apt uses here if that is the suite's distribution, else debootstrap's own choice.
# Leaves nothing behind, also after Ctrl-C: processes and mounts are in namespaces that end with it,
# and the root is removed.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

readonly DEBOOTSTRAP_SCRIPTS=/usr/share/debootstrap/scripts
readonly CLEAN_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

suite=
commands=()
as_user=no
keep=no
proxies=()                        # variables, as env takes them
work=${SHARDWISE_FRESH_INSIDE:-}  # the folder that holds the root; set: this is the script's inside
job=                              # the process that waits for the inside

usage() { sed -n '2,/^source/ { /^source/! s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"; }

duration() { printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); }

distribution_of() {  # SUITE: debian or ubuntu
  if grep -q ubuntu "$DEBOOTSTRAP_SCRIPTS/$1"; then echo ubuntu; else echo debian; fi
}

mirror_of() {  # SUITE: where its packages are; nothing if debootstrap is to choose
  if [[ -n ${SHARDWISE_MIRROR:-} ]]; then
    printf '%s' "$SHARDWISE_MIRROR"
  else
    apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
      awk -v label="$(distribution_of "$1")" 'tolower($1) == label && !found++ { print $2 }'
  fi
}

# ---- Inside: what runs in namespaces of its own.

in_root() {  # [ENVIRONMENT...] COMMAND...
  env -i PATH=$CLEAN_PATH TERM=dumb "${proxies[@]}" chroot "$work/root" env "$@"
}

debootstrap_root() {
  rm -rf --one-file-system "$work/root"
  # Ubuntu keeps half of what is needed in a second component, which Debian does not have.
  local components=main
  [[ $(distribution_of "$suite") != ubuntu ]] || components=main,universe
  # shellcheck disable=SC2046  # one word, or none
  debootstrap --variant=minbase --components="$components" "$suite" "$work/root" \
    $(mirror_of "$suite") >"$work/debootstrap.log" 2>&1 || {
    tail -n 5 "$work/debootstrap.log" >&2
    return 1
  }
}

# What an installer or a container engine adds to what debootstrap makes.
furnish_root() {
  mount -t proc proc "$work/root/proc"
  mount -t sysfs -o ro sysfs "$work/root/sys"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$work/root/dev/pts"
  mkdir -p "$work/root/dev/shm"
  mount -t tmpfs -o mode=1777 tmpfs "$work/root/dev/shm"
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$work/root/etc/hosts"
}

add_user_with_sudo() {
  try_thrice in_root apt-get -q -q update
  try_thrice in_root DEBIAN_FRONTEND=noninteractive \
    apt-get -q -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends sudo >/dev/null
  in_root useradd --create-home --shell /bin/bash user
  printf 'user ALL=(ALL) NOPASSWD: ALL\nDefaults env_keep += "http_proxy https_proxy no_proxy"\n' \
    >"$work/root/etc/sudoers.d/user"
}

inside() {
  local start=$SECONDS name=root home=/root command status
  heading "$suite: a bare root"
  try_thrice debootstrap_root || fail "debootstrap cannot make $suite: see its messages above"
  furnish_root
  if [[ $as_user == yes ]]; then
    add_user_with_sudo
    name=user home=/home/user
  fi
  mv "$work/clone" "$work/root$home/shardwise"
  in_root chown -R "$name:" "$home/shardwise"
  # shellcheck disable=SC2016  # it is the root's variable
  say "$(in_root sh -c '. /etc/os-release; echo "$PRETTY_NAME"')," \
    "$(duration $((SECONDS - start))) to make"

  for command in "${commands[@]}"; do
    heading "$suite, as $name: $command"
    start=$SECONDS
    status=0
    in_root --chdir="$home/shardwise" HOME="$home" USER="$name" \
      setpriv --reuid="$name" --regid="$name" --init-groups bash -c "$command" || status=$?
    printf '%-14s  exit %d  %s: %s\n' "$(duration $((SECONDS - start)))" "$status" "$suite" \
      "$command" >>"$work/summary"
    [[ $status -eq 0 ]] || return "$status"
  done
}

# ---- Outside: makes the namespaces, and takes everything away again.

clean_up() {
  local status=$?
  trap '' INT TERM HUP
  if [[ -n $job ]]; then
    # With the first process of a PID namespace all others in it end, and then its mounts.
    # shellcheck disable=SC2046  # one word a process
    kill -KILL $(cat "/proc/$job/task/$job/children" 2>/dev/null) 2>/dev/null || true
    wait "$job" 2>/dev/null || true
  fi
  if [[ -s $work/summary ]]; then
    heading "Summary"
    cat "$work/summary"
  fi
  if [[ $keep == yes && -d $work/root ]]; then
    say "the root stays: enter it with 'chroot $work/root', remove it with 'rm -rf $work'"
  else
    rm -rf --one-file-system "$work"
  fi
  exit "$status"
}

clone() {  # TARGET
  # As the owner of the checkout: git refuses to read what is another's.
  local as_owner
  as_owner=(runuser -u "$(stat -c %U "$SHARDWISE_SOURCE_DIR")" --)
  install -d -o "${as_owner[2]}" "$1"
  "${as_owner[@]}" git clone -q --no-hardlinks "$SHARDWISE_SOURCE_DIR" "$1" ||
    fail "cannot clone $SHARDWISE_SOURCE_DIR: it has to be a git checkout"
  [[ -z $("${as_owner[@]}" git -C "$SHARDWISE_SOURCE_DIR" status --porcelain) ]] ||
    say "note: what is not committed is not tried"
}

main() {
  local arguments=("$@") name
  while [[ ${1:-} == -* ]]; do
    case $1 in
      --as-user) as_user=yes ;;
      --keep) keep=yes ;;
      -h | --help)
        usage
        exit 0
        ;;
      *) fail "no option $1; see tools/fresh.sh --help" ;;
    esac
    shift
  done
  suite=${1:-bookworm}
  commands=("${@:2}")
  [[ ${#commands[@]} -gt 0 ]] || commands=(tools/demo.sh tools/test.sh)
  for name in http_proxy https_proxy no_proxy; do
    [[ -z ${!name:-} ]] || proxies+=("$name=${!name}")
  done
  if [[ -n $work ]]; then
    inside
    exit
  fi

  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || fail "neither root nor sudo, and debootstrap needs root"
    exec sudo --preserve-env=SHARDWISE_MIRROR,TMPDIR,http_proxy,https_proxy,no_proxy \
      "${BASH_SOURCE[0]}" "${arguments[@]}"
  fi
  install_groups fresh
  [[ -e $DEBOOTSTRAP_SCRIPTS/$suite ]] ||
    fail "debootstrap knows no '$suite'; what it knows: ls $DEBOOTSTRAP_SCRIPTS"

  work=$(mktemp -d "${TMPDIR:-/var/tmp}/shardwise-fresh.XXXXXX")
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  chmod 755 "$work"
  clone "$work/clone"
  # In a process group of its own, so that Ctrl-C reaches this script alone, which ends it.
  set -m
  SHARDWISE_FRESH_INSIDE=$work unshare --mount --propagation private --pid --fork --kill-child \
    --mount-proc "${BASH_SOURCE[0]}" "${arguments[@]}" </dev/null &
  job=$!
  set +m
  local status=0
  wait "$job" || status=$?
  job=
  return "$status"
}

main "$@"
exit
