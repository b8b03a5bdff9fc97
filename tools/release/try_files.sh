#!/usr/bin/env bash
# Tries the files of a release on a bare machine: installs each, uses it, and removes it.
#
#   tools/release/try_files.sh FOLDER
#
# Needs root. Installs Debian packages for this system, so tools/release.sh calls it in a bare root.
# Packages of another release of Debian are left out.
set -euo pipefail
unset CDPATH
files=$(realpath "${1:?the folder of the files}")
source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export DEBIAN_FRONTEND=noninteractive

say() { printf '%s\n' "$*"; }
install() { apt-get -q -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends "$@" >/dev/null; }
consumer() {  # NAME MODULE: builds the consumer by CMake and, if there is a module, by pkg-config
  cmake -S "$source_folder/tests/packaging/$1" -B "$1" >/dev/null
  cmake --build "$1" >/dev/null
  "$1/$1"
  [[ -n $2 ]] || return 0
  # shellcheck disable=SC2046  # one word a flag
  g++ -std=c++20 "$source_folder/tests/packaging/$1/$1.cc" -o "$1.program" $(pkg-config --cflags --libs "$2")
  "./$1.program"
}

(cd "$files" && sha256sum --check --quiet SHA256SUMS)
say "the sums are right"
apt-get -q -q update
# shellcheck disable=SC1091
here=$(. /etc/os-release && printf '~%s%s_' "${ID:0:3}" "$VERSION_ID")
shopt -s nullglob
packages=("$files"/*"$here"*.deb)

if [[ ${#packages[@]} -gt 0 ]]; then
  install "$files"/shardwise_*"$here"*.deb "$files"/libshardwise0*"$here"*.deb
  [[ -z $(ldd /usr/bin/shardwise | grep -E 'not found|libav|libtorch') ]]
  shardwise --version
  mkdir samples
  for number in 1 2 3 4 5 6 7 8; do
    printf 'sample %d\n' "$number" >"samples/$number.txt"
  done
  tar --sort=name -cf shard.tar -C samples .
  shardwise index -o shard.idx shard.tar
  shardwise epoch shard.idx
  shardwise verify shard.idx
  say "the program runs, alone"

  install g++ cmake make pkg-config "${packages[@]}"
  consumer consumer shardwise
  consumer video_consumer shardwise-video
  consumer libtorch_consumer ''
  shardwise-train --version
  say "the consumers run"

  mapfile -t names < <(dpkg-query -W -f '${Package}\n' '*shardwise*')
  apt-get -q -q -y purge "${names[@]}" >/dev/null
  left=$(find /usr /etc /var/lib/dpkg/info -name '*shardwise*')
  [[ -z $left ]] || { say "left behind: $left" && exit 1; }
  say "removed ${#names[@]} packages, and nothing is left"
fi

wheels=("$files"/shardwise-*.whl)
if [[ ${#wheels[@]} -gt 0 ]]; then
  install python3-venv
  python3 -m venv venv
  venv/bin/pip install -q --disable-pip-version-check --find-links "$files" "${wheels[0]}" numpy
  mkdir first
  cat >first/lines.py <<'PYTHON'
import shardwise
from shardwise import columns

with shardwise.ShardWriter("train-%06d.tar", max_samples=100, index="train.idx", columns=["cls"]) as sink:
    for i in range(400):
        sink.write({"__key__": f"{i:06}", "txt": f"sample {i}", "cls": i % 10})
data = shardwise.open("train.idx")
assert data[42].text("txt") == "sample 42" and len(data.where("cls = 7")) == 40
loader = shardwise.Loader(data, columns=[columns.text("txt")], order=shardwise.Order(seed=17), batch_size=64)
for epoch in loader.epochs(1):
    assert sum(len(batch.text("txt")) for batch in epoch) == 400
    print(epoch.prove())
print("Python's first lines:", shardwise.__version__)
PYTHON
  (cd first && ../venv/bin/python lines.py)
  venv/bin/shardwise --version
  ! venv/bin/python -c 'from shardwise import columns; columns.video("mp4")' 2>message.txt
  grep -q 'shardwise\[video\]' message.txt
  venv/bin/pip install -q --disable-pip-version-check --find-links "$files" "${wheels[0]}[video]"
  venv/bin/python -c 'from shardwise import columns; print(columns.video("mp4"))'
  say "the wheels run with $(venv/bin/python --version)"
fi

# Last, since it installs libraries that the wheels must not need.
sdists=("$files"/shardwise-*[0-9].tar.gz)
if [[ ${#sdists[@]} -gt 0 ]]; then
  "$source_folder/tools/setup.sh" build python
  python3 -m venv from-source
  from-source/bin/pip install -q --disable-pip-version-check "${sdists[0]}"
  from-source/bin/shardwise --version
  from-source/bin/python -c 'import shardwise; print(shardwise.__version__)'
  say "the sdist was built and runs with $(from-source/bin/python --version)"
fi
