#!/usr/bin/env bash
# Sets up, builds everything with its tests, and runs the tests.
#
#   tools/test.sh [--smoke] [CTEST ARGUMENT...]      for example: tools/test.sh -R Sampler -L unit
#
#   --smoke   only one test program of each room, and the installed package; of these none may be
#             skipped for want of something that packages.txt should name
#
# Exits 0 only if everything was built and every test passed. Writes to build-test/.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

smoke=
case ${1:-} in
  --smoke)
    smoke=yes
    shift
    ;;
  -h | --help)
    sed -n '2,/^source/ { /^source/! s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac

heading "Setting up"
install_groups build test
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
say "done"

cd "$SHARDWISE_SOURCE_DIR"
heading "Building (build-test/)"
cmake --preset test "${options[@]}"
cmake --build --preset test ${smoke:+--target smoke_tests}

heading "Testing"
[[ -n $smoke ]] || exec ctest --preset test --parallel "$(nproc)" --no-tests=error "$@"
ctest --preset test --parallel "$(nproc)" --no-tests=error --label-regex smoke "$@" |
  tee build-test/smoke.log
# The given corpus, moto and webdataset are in no distribution.
if grep -E '\(Skipped\)' build-test/smoke.log | grep -vE 'Corpus|Moto|InstalledWebdataset'; then
  fail "these tests were skipped, which a package would have made possible: see why above"
fi
