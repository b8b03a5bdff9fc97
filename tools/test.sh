#!/usr/bin/env bash
# Sets up, builds everything with its tests, and runs the tests.
#
#   tools/test.sh [--smoke] [CTEST ARGUMENT...]      for example: tools/test.sh -R Sampler -L unit
#
#   --smoke   only one test program of each room, and the installed package
#
# Exits 0 only if everything was built and every test passed. Writes to build-test/.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

smoke=
if [[ ${1:-} == --smoke ]]; then
  smoke=yes
  shift
fi

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
exec ctest --preset test --parallel "$(nproc)" --no-tests=error ${smoke:+--label-regex smoke} "$@"
