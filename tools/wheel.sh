#!/usr/bin/env bash
# Builds the Python package as a wheel, and tests it, installed, in fresh environments.
#
#   tools/wheel.sh [PYTHON...]      for example: tools/wheel.sh python3.11 /opt/python3.13/bin/python3
#
#   PYTHON   interpreters to test it with; without any: python3.11 to python3.14, as they are found.
#            Those that are missing are named.
#
# The wheel serves them all: it is built once, by the first. It uses this system's libraries; for one
# that brings its own see docs/python-wheels.md. Writes to build-wheels/, the wheel itself to
# build-wheels/dist/. Exits 0 only if the tests pass in every environment.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
case ${1:-} in
  -h | --help)
    sed -n '2,/^source/ { /^source/! s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac

heading "Setting up"
install_groups build test
choose_compiler
pythons=()
missing=()
for python in "${@:-python3.11 python3.12 python3.13 python3.14}"; do
  for name in $python; do
    if "$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      pythons+=("$name")
    else
      missing+=("$name")
    fi
  done
done
[[ ${#missing[@]} -eq 0 ]] || say "not tested with, for they are not here: ${missing[*]}"
[[ ${#pythons[@]} -gt 0 ]] || fail "there is no Python of 3.11 or newer"
cd "$SHARDWISE_SOURCE_DIR"
mkdir -p build-wheels
SHARDWISE_PYTHON=${pythons[0]} make_python_environment "$PWD/build-wheels/builder" ||
  fail "$NO_PYTHON"

heading "Building the wheel"
rm -rf build-wheels/dist
build-wheels/builder/bin/python -m pip wheel --quiet --no-deps --no-build-isolation \
  --wheel-dir build-wheels/dist .
wheel=$(echo build-wheels/dist/*.whl)
say "$wheel: $(($(stat -c %s "$wheel") / 1024)) KiB"

for python in "${pythons[@]}"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  heading "Testing it with Python $version"
  environment=build-wheels/python$version
  rm -rf "$environment"
  "$python" -m venv "$environment"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
    "$wheel[test]"
  "$environment/bin/shardwise" --version
  "$environment/bin/python" -m pytest -q -p no:cacheprovider -c pyproject.toml \
    --rootdir tests/python --ignore tests/python/peers tests/python
done
