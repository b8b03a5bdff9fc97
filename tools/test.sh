#!/usr/bin/env bash
# Sets up, builds everything with its tests, and runs the tests.
#
#   tools/test.sh [--smoke] [--thorough] [--peers] [CTEST ARGUMENT...]   for example: tools/test.sh -R sampler
#
#   --smoke      only one test program per room, and the installed package; none of these may be
#                skipped for lack of something that packages.txt should list
#   --thorough   tests run all their repetitions and costly cases, not a part; takes hours
#   --peers      also tests the Python package with torch and with packages based on it, which
#                are downloaded
#
# Random tests use a new seed each time and print it; SHARDWISE_SEED=N repeats a run.
# The Python package is built and tested in its own environment, build-test/venv, if its packages
# can be downloaded. Otherwise this prints why it is omitted.
#
# The last line has the numbers of cases that passed, failed and were skipped. The lines above it
# name the failed cases, and say why others were skipped. Exits 0 only if everything was built and
# every test passed. Writes to build-test/ and build-test-shared/.
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
# Warnings are errors only with the compiler version for which the project has no warnings. A newer
# compiler may have new warnings, which should not keep a user from running the tests.
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
# Twice as many jobs as cores, since many tests wait. Reset signals: tests send SIGINT, which shells
# make their background jobs ignore.
status=0
env --default-signal ctest --preset test --parallel $((2 * $(nproc))) --no-tests=error --output-junit "$results/ctest.xml" \
  ${smoke:+--label-regex smoke} "$@" || status=$?
[[ -e $results/ctest.xml ]] || exit "$status"
python3 tests/summary.py "$results" | tee "$results/summary.txt"
# Distributions lack the given corpus, moto and webdataset.
if [[ -n $smoke ]] && grep '^skipped' "$results/summary.txt" | grep -viE 'corpus|moto|webdataset'; then
  fail "a package would have made the tests above possible"
fi
exit "$status"
