#!/usr/bin/env bash
# Sets up, builds everything with its tests, and runs the tests.
#
#   tools/test.sh [--smoke] [--thorough] [--peers] [CTEST ARGUMENT...]   for example: tools/test.sh -R sampler
#
#   --smoke      only one test program of each room, and the installed package; of these none may be
#                skipped for want of something that packages.txt should name
#   --thorough   tests that repeat a property run their whole count, which takes hours, not a slice
#   --peers      tests the Python package also with torch and what is built on it, which are fetched
#
# Random tests take a fresh seed each time and print it; SHARDWISE_SEED=N repeats a run.
# The Python package is built and tested in an environment of its own, build-test/venv, where its
# packages can be had; otherwise this says why it is left out.
#
# The last line counts the cases that passed, failed and were skipped; the lines above it say which
# failed, and why the others were skipped. Exits 0 only if everything was built and every test passed.
# Writes to build-test/ and build-test-shared/.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

smoke=
python_groups=(test)
while [[ $# -gt 0 ]]; do
  case $1 in
    --smoke) smoke=yes ;;
    --thorough) export SHARDWISE_THOROUGH=1 ;;
    --peers) python_groups+=(peers) ;;
    -h | --help)
      sed -n '2,/^source/ { /^source/! s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) break ;;
  esac
  shift
done

if [[ -z $smoke${SHARDWISE_THOROUGH:-} ]]; then
  say "On 2 cores the first build takes about 10 minutes, and the tests about as long." \
    "Packages that are missing come on top."
fi
heading "Setting up"
install_groups build python test
choose_compiler
options=()
if have_libtorch; then
  options+=(-DSHARDWISE_WITH_LIBTORCH=ON)
else
  say "Testing without LibTorch: $NO_LIBTORCH"
  options+=(-DSHARDWISE_WITH_LIBTORCH=OFF)
fi
if ! pkg-config --atleast-version=1.0.3 libhwy; then
  say "Testing without the loader: this release has no package libhwy-dev of 1.0.3 or newer"
  options+=(-DSHARDWISE_WITH_LOADER=OFF -DSHARDWISE_WITH_LIBTORCH=OFF)
fi
# Warnings are errors with the compiler that the project holds them at zero with. A newer one may
# have new warnings, and those should not keep a user from running the tests.
if [[ $(compiler_major "${CXX:-g++}") != 12 ]]; then
  options+=(-DSHARDWISE_DEVELOPER=OFF)
fi
mkdir -p "$SHARDWISE_SOURCE_DIR/build-test"
environment=$SHARDWISE_SOURCE_DIR/build-test/venv
if [[ ${options[*]} == *WITH_LOADER=OFF* ]]; then
  say "Testing without the Python package, which needs the loader"
elif make_python_environment "$environment" "${python_groups[@]}"; then
  options+=(-DSHARDWISE_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$environment/bin/python")
else
  say "Testing without the Python package: $NO_PYTHON"
  options+=(-DSHARDWISE_BUILD_PYTHON=OFF)
fi
say "done"

cd "$SHARDWISE_SOURCE_DIR"
heading "Building (build-test/)"
cmake --preset test "${options[@]}"
cmake --build --preset test ${smoke:+--target smoke_tests}

heading "Testing"
results=$SHARDWISE_SOURCE_DIR/build-test/results
rm -rf "$results"
mkdir -p "$results"
# Twice the cores, since many tests wait. Default signals: tests send SIGINT, which a shell has its jobs in
# the background ignore.
status=0
env --default-signal ctest --preset test --parallel $((2 * $(nproc))) --no-tests=error --output-junit "$results/ctest.xml" \
  ${smoke:+--label-regex smoke} "$@" || status=$?
[[ -e $results/ctest.xml ]] || exit "$status"
python3 tests/summary.py "$results" | tee "$results/summary.txt"
# The given corpus, moto and webdataset are in no distribution.
if [[ -n $smoke ]] && grep '^skipped' "$results/summary.txt" | grep -viE 'corpus|moto|webdataset'; then
  fail "a package would have made the tests above possible"
fi
exit "$status"
