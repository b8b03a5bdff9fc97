#!/usr/bin/env bash
# Tries the project on a bare machine: creates the root file system of a Debian or Ubuntu release
# with debootstrap, clones the last commit into it, and runs commands there, with a clean
# environment and the release's own compiler, CMake and libraries.
#
#   tools/fresh.sh [--as-user] [--keep] [--ccache] [--with FOLDER] [SUITE [COMMAND...]]
#
#   SUITE       bookworm (default), trixie, or another suite that debootstrap and a mirror have
#   COMMAND     a bash command line to run in the clone; default: tools/demo.sh, then tools/test.sh
#   --as-user   run the commands as an ordinary user who may use sudo, not as root
#   --keep      keep the root file system, and print how to enter it
#   --with      copy FOLDER into the home folder there
#   --ccache    compile with ccache and this user's cache; ccache must be installed here
#
# Prints how long each command took. Stops at the first command that fails. Exits 0 if all
# succeeded.
#
# Needs root or sudo, about 8 GB in TMPDIR (/var/tmp by default), and a mirror: $SHARDWISE_MIRROR,
# else apt's mirror here if it has the suite's distribution, else debootstrap's default. Leaves
# nothing behind, even after Ctrl-C: processes and mounts are in namespaces that end with this
# script, and the root is removed. Only kill -9 leaves the root's folder.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
umask 022 # all users must be able to read the root's files

readonly DEBOOTSTRAP_SCRIPTS=/usr/share/debootstrap/scripts
readonly CLEAN_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

suite=
commands=()
as_user=no
keep=no
compiler_cache= # ccache's folder
copied=         # the folder to copy
variables=()                      # variables for the commands, as arguments of env
work=${SHARDWISE_FRESH_INSIDE:-}  # the root's parent folder; set inside the namespaces
job=                              # the process that waits for the namespaces

usage() { sed -n '2,/^source/ { /^source/! s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"; }

duration() { printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); }

distribution_of() {  # SUITE: debian or ubuntu
  if grep -q ubuntu "$DEBOOTSTRAP_SCRIPTS/$1"; then echo ubuntu; else echo debian; fi
}

mirror_of() {  # SUITE: URL of its packages; empty if debootstrap is to choose
  if [[ -n ${SHARDWISE_MIRROR:-} ]]; then
    printf '%s' "$SHARDWISE_MIRROR"
  else
    apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Created-By: Packages' |
      awk -v label="$(distribution_of "$1")" \
        'NF == 2 && tolower($2) == label && !found++ { print $1 }'
  fi
}

# ---- Inside the namespaces.

in_root() {  # [ENVIRONMENT...] COMMAND...
  env -i --default-signal PATH=$CLEAN_PATH TERM=dumb "${variables[@]}" chroot "$work/root" env "$@"
}

debootstrap_root() {
  rm -rf --one-file-system "$work/root"
  # Let a mirror that does not answer fail.
  printf 'timeout = 60\ntries = 3\n' >"$work/wgetrc"
  # Ubuntu has half of the needed packages in the component universe, which Debian lacks.
  local components=main
  [[ $(distribution_of "$suite") != ubuntu ]] || components=main,universe
  # shellcheck disable=SC2046  # one word, or none
  WGETRC=$work/wgetrc debootstrap --variant=minbase --components="$components" "$suite" \
    "$work/root" $(mirror_of "$suite") >"$work/debootstrap.log" 2>&1 || {
    cat "$work/debootstrap.log" "$work/root/debootstrap/debootstrap.log" 2>/dev/null | tail -n 12 >&2
    return 1
  }
}

# Adds what an installer or a container engine adds to debootstrap's result.
furnish_root() {
  mount -t proc proc "$work/root/proc"
  mount -t sysfs -o ro sysfs "$work/root/sys"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$work/root/dev/pts"
  mkdir -p "$work/root/dev/shm"
  mount -t tmpfs -o mode=1777 tmpfs "$work/root/dev/shm"
  printf '%s\n' '127.0.0.1 localhost' '::1 localhost' "127.0.1.1 $(uname -n)" >"$work/root/etc/hosts"
  # Copy certificate authorities that were added to this machine, e.g. for a company's proxy.
  if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    install -D --mode=644 --target-directory="$work/root/usr/local/share/ca-certificates" \
      /usr/local/share/ca-certificates/*.crt
  fi
}

add_package() {  # PACKAGE
  try_thrice in_root bash -c "apt-get -q -q update && apt-get -q -q -y -o Dpkg::Use-Pty=0 install \
    --no-install-recommends $1 >/dev/null" || fail "$1 cannot be installed: see above"
}

add_ccache() {
  add_package ccache
  mkdir "$work/root/ccache"
  mount --bind "$compiler_cache" "$work/root/ccache"
  variables+=(CCACHE_DIR=/ccache)
}

add_user_with_sudo() {
  add_package sudo
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
  [[ -z $compiler_cache ]] || add_ccache
  mv "$work/clone" "$work/root$home/shardwise"
  [[ -z $copied ]] || cp -r "$copied" "$work/root$home/"
  in_root chown -R "$name:" "$home"
  # shellcheck disable=SC2016  # it is the root's variable
  say "$(in_root sh -c '. /etc/os-release; echo "$PRETTY_NAME"')," \
    "$(duration $((SECONDS - start))) to make"

  for command in "${commands[@]}"; do
    heading "$suite, as $name: $command"
    start=$SECONDS
    status=0
    in_root --chdir="$home/shardwise" HOME="$home" USER="$name" \
      setpriv --reuid="$name" --regid="$name" --init-groups bash -c -- "$command" || status=$?
    printf '%-14s  exit %d  %s: %s\n' "$(duration $((SECONDS - start)))" "$status" "$suite" \
      "$command" >>"$work/summary"
    [[ $status -eq 0 ]] || return "$status"
  done
}

# ---- Outside: creates the namespaces, and removes everything at the end.

# Printing comes last, since it fails if the reader has ended.
clean_up() {
  local status=$? summary try
  set +e
  trap '' INT TERM HUP PIPE
  if [[ -n $job ]]; then
    # Killing the first process of a PID namespace ends all its processes, and then its mounts are
    # removed. That process also ends with $job.
    # shellcheck disable=SC2046  # one word a process
    kill -KILL $(cat "/proc/$job/task/$job/children") "$job" 2>/dev/null
    wait "$job"
  fi 2>/dev/null
  summary=$(cat "$work/summary" 2>/dev/null)
  if [[ $keep != yes || ! -e $work/root/bin/bash ]]; then
    for try in 1 2 3 4 5; do
      rm -rf --one-file-system "$work" 2>/dev/null && break
      sleep 1
    done
  fi
  [[ -z $summary ]] || { heading "Summary" && say "$summary"; }
  [[ ! -d $work ]] ||
    say "$work stays; enter the root in it with:" \
      "unshare --mount --pid --fork --root=$work/root --mount-proc bash"
  exit "$status"
}

clone() {  # TARGET
  # Clone as the owner of the checkout: git refuses to read another user's repository.
  local owner as_owner
  owner=$(stat -c %u "$SHARDWISE_SOURCE_DIR")
  as_owner=(env HOME=/ setpriv --reuid="$owner" --regid="$(stat -c %g "$SHARDWISE_SOURCE_DIR")" --clear-groups)
  install -d -o "$owner" "$1"
  "${as_owner[@]}" git clone -q --no-hardlinks "$SHARDWISE_SOURCE_DIR" "$1" ||
    fail "cannot clone $SHARDWISE_SOURCE_DIR: it has to be a git checkout, and its owner must be able" \
      "to write below ${TMPDIR:-/var/tmp}"
  [[ -z $("${as_owner[@]}" git -C "$SHARDWISE_SOURCE_DIR" status --porcelain) ]] ||
    say "note: what is not committed is not tried"
}

main() {
  local arguments=("$@") name
  while [[ ${1:-} == -* ]]; do
    case $1 in
      --as-user) as_user=yes ;;
      --keep) keep=yes ;;
      --ccache)
        command -v ccache >/dev/null || fail "ccache is not installed here: tools/setup.sh ci"
        compiler_cache=$(ccache --get-config cache_dir)
        mkdir -p "$compiler_cache"
        ;;
      --with)
        [[ -d ${2:-} ]] || fail "--with needs a folder"
        copied=$(realpath "$2")
        shift
        ;;
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
  for name in "${commands[@]}"; do
    [[ $name != -* ]] || fail "$name is no command; options come before the suite"
  done
  [[ ${#commands[@]} -gt 0 ]] || commands=(tools/demo.sh tools/test.sh)
  for name in http_proxy https_proxy no_proxy; do
    [[ -z ${!name:-} ]] || variables+=("$name=${!name}")
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
  [[ $suite =~ ^[a-z]+$ && -f $DEBOOTSTRAP_SCRIPTS/$suite ]] ||
    fail "debootstrap knows no '$suite'; what it knows: ls $DEBOOTSTRAP_SCRIPTS"
  [[ $(distribution_of "$suite") == debian || -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]] ||
    fail "Ubuntu's keys are missing here: install its package ubuntu-keyring"
  [[ ${TMPDIR:-} != *[[:space:]]* ]] || fail "debootstrap cannot do with blanks in TMPDIR: '$TMPDIR'"

  work=$(mktemp -d "${TMPDIR:-/var/tmp}/shardwise-fresh.XXXXXX")
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  chmod 755 "$work"
  clone "$work/clone"
  # Run it in its own session. Ctrl-C then reaches only this script, which ends the session, and no
  # process there can wait for a terminal. The session also ends if this script does.
  SHARDWISE_FRESH_INSIDE=$work setpriv --pdeathsig KILL setsid \
    unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
    "${BASH_SOURCE[0]}" "${arguments[@]}" </dev/null &
  job=$!
  local status=0
  wait "$job" || status=$?
  job=
  return "$status"
}

main "$@"; exit # on one line, so that bash reads nothing that is edited while it runs
