#!/usr/bin/env bash
# Makes what a release consists of from the last commit, and tries it in bare roots:
# build-release/dist/ gets the source tarball, the sdist, the wheels, the Debian packages, the site,
# an SBOM, and SHA256SUMS.
#
#   tools/release.sh [--libraries PREFIX] [--maintainer 'NAME <ADDRESS>'] [--twice] [--no-wheels]
#                    [--no-site] [SUITE...]
#
#   SUITE         releases in whose bare roots the files are tried (tools/fresh.sh), e.g. bookworm
#   --libraries   the folder that tools/wheel/build_libraries.sh has filled; by default it is filled
#                 first, in build-release/libraries
#   --maintainer  name and address of the Debian packages' maintainer
#   --twice       build again in another folder, without the wheels' libraries, and compare the sums
#   --no-wheels   leave out the wheels
#   --no-site     leave out the site
#
# The checkout must be clean: everything is built from the source tarball. The Debian packages are for
# the release of Debian that this machine runs. Exits 0 only if lintian finds no error, every trial
# passes and, with --twice, all sums are equal.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

libraries=
maintainer=
twice=no
wheels=yes
site=yes
while [[ ${1:-} == -* ]]; do
  case $1 in
    --libraries) libraries=$(realpath "${2:?a folder}") && shift ;;
    --maintainer) maintainer=${2:?a name and an address} && shift ;;
    --twice) twice=yes ;;
    --no-wheels) wheels=no ;;
    --no-site) site=no ;;
    -h | --help)
      sed -n '2,/^source/ { /^source/! s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) fail "no option $1; see tools/release.sh --help" ;;
  esac
  shift
done
cd "$SHARDWISE_SOURCE_DIR"
for suite in "$@"; do
  [[ $suite != -* ]] || fail "$suite is no suite; options come before the suites"
done
[[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed: commit them first"

version=$(sed -n 's/^project(shardwise VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=shardwise-$version
top=$PWD/build-release
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
umask 022 # as the modes in the packages
export CCACHE_DISABLE=1 # the second build must compile again

archive_of() {  # FOLDER IN-FOLDER: writes a gzipped tar that is the same at each build
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w \
    -C "$2" -c "$1" | gzip -9 --no-name
}

make_packages() {  # DIST
  local flags=() revision
  mkdir -p build-release
  # shellcheck disable=SC1091
  revision=$(. /etc/os-release && printf '1~%s%s' "${ID:0:3}" "$VERSION_ID")
  export DEB_BUILD_MAINT_OPTIONS=hardening=+bindnow DEB_CXXFLAGS_MAINT_STRIP=-g
  [[ -z $maintainer ]] || flags+=("-DSHARDWISE_MAINTAINER=$maintainer")
  CXXFLAGS="$(dpkg-buildflags --get CXXFLAGS | sed 's/-ffile-prefix-map=[^ ]*//') $(dpkg-buildflags --get CPPFLAGS)" \
    LDFLAGS=$(dpkg-buildflags --get LDFLAGS) cmake -S . -B build-release/packages -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG -DBUILD_SHARED_LIBS=ON \
    -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_SKIP_INSTALL_RPATH=ON -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
    "-DSHARDWISE_PACKAGE_RELEASE=$revision" "${flags[@]}" >build-release/packages.log ||
    fail "CMake cannot configure: see $PWD/build-release/packages.log"
  cmake --build build-release/packages
  rm -rf build-release/packages/packages
  (cd build-release/packages && cpack -G DEB --config CPackConfig.cmake >cpack.log) ||
    fail "CPack failed: see $PWD/build-release/packages/cpack.log"
  lintian --fail-on error build-release/packages/packages/*.deb
  cp build-release/packages/packages/*.deb "$1/"
}

# The versions of what built the files. The flags of the compiler are in the CMake files.
build_tools() {
  "${CXX:-g++}" --version | head -n 1
  cmake --version | head -n 1
  "$top/venv/bin/python" --version
  "$top/venv/bin/python" -m pip freeze
  [[ ! -x build-wheels/builder/bin/python ]] || build-wheels/builder/bin/python -m pip freeze
  # shellcheck disable=SC2046  # one word a package
  dpkg-query -W $(packages_of build python) 2>/dev/null || true # some need not be installed
}

make_all() {  # WORK-FOLDER: fills its folder dist
  local work=$1 dist=$1/dist
  rm -rf "$dist" "${work:?}/$name"
  mkdir -p "$dist"
  heading "The source tarball"
  git archive --format=tar --prefix="$name/" HEAD | gzip -9 --no-name >"$dist/$name-source.tar.gz"
  tar -xzf "$dist/$name-source.tar.gz" -C "$work"
  cd "$work/$name"

  heading "The Debian packages"
  make_packages "$dist"

  heading "The sdist, and the wheels"
  "$top/venv/bin/python" -m build --no-isolation --sdist --outdir "$dist" . >"$work/sdist.log" ||
    fail "the sdist cannot be made: see $work/sdist.log"
  if [[ $wheels == yes ]]; then
    tools/wheel.sh --static "$libraries" --no-tests
    cp build-wheels/dist/*.whl "$dist/"
  fi

  if [[ $site == yes ]]; then
    heading "The site"
    env -u CCACHE_DISABLE tools/site.sh # the site has no compiled files
    mv build-site/site "build-site/$name-site"
    archive_of "$name-site" build-site >"$dist/$name-site.tar.gz"
  fi

  heading "The SBOM, and the sums"
  build_tools >"$dist/$name-built-with.txt"
  "$top/venv/bin/python" tools/release/sbom.py "$version" tools/wheel/libraries.txt >"$dist/$name.cdx.json"
  cd "$dist"
  # shellcheck disable=SC2035  # no name begins with a dash
  sha256sum * >"$work/SHA256SUMS"
  mv "$work/SHA256SUMS" .
  cd "$SHARDWISE_SOURCE_DIR"
}

heading "Setting up"
install_groups build python release
have_libtorch || fail "$NO_LIBTORCH"
choose_compiler
mkdir -p "$top"
make_python_environment "$top/venv" || fail "$NO_PYTHON"
try_thrice "$top/venv/bin/python" -m pip install --quiet --disable-pip-version-check build \
  'cyclonedx-python-lib[json-validation]>=11' || fail "pip cannot install what is needed: see above"
if [[ $wheels == yes && -z $libraries ]]; then
  heading "The libraries of the wheels"
  libraries=$top/libraries
  tools/wheel/build_libraries.sh "$libraries"
fi

make_all "$top"
if [[ $twice == yes ]]; then
  make_all "$top/second-build"
  heading "Both builds"
  diff "$top/dist/SHA256SUMS" "$top/second-build/dist/SHA256SUMS" || fail "the builds differ: see above"
  say "all sums are equal"
fi
for suite in "$@"; do
  tools/fresh.sh --with "$top/dist" "$suite" "tools/release/try_files.sh ~/dist"
done
heading "build-release/dist"
! grep -q "^## $version, not released yet" CHANGELOG.md || say "not to be published: CHANGELOG.md has no date"
[[ -n $maintainer ]] || say "not to be published: no --maintainer, so the packages name an invalid address"
(cd "$top/dist" && ls -l | awk 'NR > 1 { printf "%10d  %s\n", $5, $9 }')
