#!/usr/bin/env bash
# Builds the benches, runs each with its limits and peers, and writes one report.
#
#   tools/bench.sh [--only SECTION...] [--rounds N] [--quick] [--scale FOLDER] [--again] [-o FILE]
#   tools/bench.sh --list
#
#   --list           names the sections
#   --only SECTION   runs only these; the report has also others with a result
#   --rounds N       how often each row is measured (default 5)
#   --quick          small data and one round: shows that each section runs; its figures mean nothing
#   --scale FOLDER   also measures the commands of an index on a million samples, made in FOLDER, best
#                    on a file system with reflinks
#   --again          also runs sections that have a result of this commit and these options
#   -o FILE          the report (default build-bench/report.md)
#
# The machine should be quiet: the report states its load. Run it again after an interruption: sections
# that have a result are kept.
# The peers come from the package index, into build-bench/venv. A section whose peer is missing is named
# in the report with the reason.
#
# Exits 0 if all sections ran, 1 if one failed, and 3 if one could not run on this machine. Writes to
# build-bench/: the report, data, and results/, which has the values of each round as JSON.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

for argument in "$@"; do
  case $argument in
    -h | --help)
      sed -n '2,/^source/ { /^source/! s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --list) exec python3 "$SHARDWISE_SOURCE_DIR/bench/report.py" --list ;;
  esac
done

build=$SHARDWISE_SOURCE_DIR/build-bench
heading "Setting up"
install_groups build python test bench
choose_compiler
mkdir -p "$build"
python3 "$SHARDWISE_SOURCE_DIR/bench/report.py" --check "$@" # a wrong option fails before the build
if ! make_python_environment "$build/venv" test bench; then
  say "Measuring without peers in Python: $NO_PYTHON"
  make_python_environment "$build/venv" test || fail "$NO_PYTHON"
fi
options=()
if [[ $(compiler_major "${CXX:-g++}") != 12 ]]; then
  options+=(-DSHARDWISE_DEVELOPER=OFF) # newer compilers may have new warnings
fi

heading "Building (build-bench/)"
cmake -S "$SHARDWISE_SOURCE_DIR" --preset default -B "$build" -DSHARDWISE_BUILD_BENCH=ON \
  -DSHARDWISE_WITH_LIBTORCH=OFF -DSHARDWISE_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$build/venv/bin/python" "${options[@]}"
cmake --build "$build" --target benches shardwise_program shardwise_package

heading "Measuring"
PYTHONPATH=$build/python exec "$build/venv/bin/python" "$SHARDWISE_SOURCE_DIR/bench/report.py" --build "$build" "$@"
