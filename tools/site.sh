#!/usr/bin/env bash
# Builds the pages as a site with search and with the references of Python and C++:
# build-site/site/index.html.
#
#   tools/site.sh [--serve]
#
#   --serve   shows the site at http://127.0.0.1:8000 until Ctrl-C
#
# Installs the group `site` of packages.txt, and the packages of tools/site/requirements.txt into build-site/venv.
# The references are made from the Python package and the program in build-test/, which
# tools/test.sh configures. If build-test/ has no Python package, build-site/build/ is used. Missing
# parts are built.
# Exits 0 only if Doxygen and MkDocs do not warn, and no link is broken. Writes to build-site/.
# Removing it undoes everything except the installed packages.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$SHARDWISE_SOURCE_DIR"
site=$SHARDWISE_SOURCE_DIR/build-site
build=$SHARDWISE_SOURCE_DIR/build-test # changed below if it has no Python package

heading "Setting up"
install_groups build python site
choose_compiler
mkdir -p "$site"
[[ -x $site/venv/bin/python ]] || python3 -m venv "$site/venv"
if ! cmp -s tools/site/requirements.txt "$site/installed.txt"; then
  say "installing into build-site/venv:" $(grep -v '^#' tools/site/requirements.txt)
  try_thrice "$site/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r tools/site/requirements.txt ||
    fail "pip cannot install what is needed: see above; is the package index within reach?"
  cp tools/site/requirements.txt "$site/installed.txt"
fi

heading "Building the Python package and the program"
if ! grep -qs 'SHARDWISE_BUILD_PYTHON:BOOL=ON' "$build/CMakeCache.txt"; then
  build=$site/build
  make_python_environment "$build/venv" || fail "$NO_PYTHON"
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSHARDWISE_BUILD_TESTS=OFF -DSHARDWISE_WITH_LIBTORCH=OFF \
    -DSHARDWISE_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$build/venv/bin/python"
fi
cmake --build "$build" --target shardwise_package shardwise_manual_pages

heading "Making the references"
rm -rf "$site/pages" "$site/python" "$site/site" "$site/xml"
mkdir -p "$site/pages/docs" "$site/pages/tests" "$site/pages/reference"
OUTPUT_DIRECTORY=$site doxygen tools/site/Doxyfile
python3 tools/site/cpp_reference.py "$site/xml" "$site/pages/reference/cpp"
# Use the project's layout, so that links between pages work. Add the stubs, which the build writes
# beside the sources.
ln -s "$PWD"/{README.md,CHANGELOG.md,CITATION.cff,CONTRIBUTING.md,SECURITY.md,LICENSE,examples} "$site/pages/"
ln -s "$PWD"/docs/* "$build/tools/manual/pages/cli.md" "$site/pages/docs/"
ln -s "$PWD/tests/faults.md" "$site/pages/tests/"
ln -s "$PWD/tools/site/python" "$site/pages/reference/python"
ln -s "$PWD/tools/site/site.css" "$site/pages/"
ln -s "$build/python" "$site/python"

heading "Building the site (build-site/site/)"
export NO_MKDOCS_2_WARNING=1 # hides the warning about a future version
if [[ ${1:-} == --serve ]]; then
  exec "$site/venv/bin/mkdocs" serve --dev-addr 127.0.0.1:8000
fi
"$site/venv/bin/mkdocs" build --strict --quiet
python3 tools/site/check_site.py "$site/site"
say "open build-site/site/index.html"
