#!/usr/bin/env bash
# Builds the libraries that a wheel includes: static, position-independent, and only the parts that
# Shardwise uses.
#
#   tools/wheel/build_libraries.sh [--list FILE] [--sources FOLDER] PREFIX
#
#   PREFIX     folder to install the libraries to; existing ones are not built again
#   --list     a list to use instead of libraries.txt beside this script
#   --sources  folder with the sources, or for downloading them; default: PREFIX/sources
#
# Checks the SHA-256 of every source. Needs a C and a C++ compiler, make, CMake, Perl (for OpenSSL),
# nasm (for libjpeg-turbo on x86-64) and, to download sources, curl. To build with the libraries,
# pass -D SHARDWISE_STATIC_PREFIX=PREFIX to CMake; see docs/python-wheels.md.
set -euo pipefail
unset CDPATH # if CDPATH is set, cd prints

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list=$HERE/libraries.txt
sources=

say() { printf '%s\n' "$*"; }
fail() {
  printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

while [[ ${1:-} == -* ]]; do
  case $1 in
    --list) list=$(realpath "$2") && shift ;;
    --sources) mkdir -p "$2" && sources=$(realpath "$2") && shift ;;
    -h | --help)
      sed -n '2,/^set/ { /^set/! s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) fail "no option $1; see --help" ;;
  esac
  shift
done
[[ $# -eq 1 ]] || fail "name one folder to install to; see --help"
mkdir -p "$1"
prefix=$(realpath "$1")
[[ $prefix != *[[:space:]]* ]] || fail "$prefix has a space, with which some of the libraries cannot be built"
sources=${sources:-$prefix/sources}
mkdir -p "$sources" "$prefix"/{include,lib/pkgconfig,licenses,built}
case $(uname -m) in
  x86_64) command -v nasm >/dev/null || fail "nasm is missing: install it, or JPEG decodes at a third of its speed" ;;
esac
for tool in cc c++ make cmake perl tar; do
  command -v "$tool" >/dev/null || fail "$tool is missing: install it"
done

# Hide all symbols, here and again when linking the wheel. Separate sections let the linker drop
# unused code.
export CFLAGS="-O2 -g0 -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections"
export CXXFLAGS="$CFLAGS -fvisibility-inlines-hidden"
export PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig # use no library of this system
jobs=$(nproc)
# A library is built again after a change of this script or of the compiler.
BUILT_BY=$(cat "$HERE/build_libraries.sh" <(cc --version) | sha256sum | cut -c 1-16)

build_with_cmake() {  # SOURCE OPTION...
  cmake -S "$1" -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-DNDEBUG \
    -DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DCMAKE_FIND_LIBRARY_SUFFIXES=.a -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF "${@:2}"
  cmake --build build --parallel "$jobs"
  cmake --install build
}

# ---- One function per library, called in the folder of its source.

build_zlib() {
  ./configure --static --prefix="$prefix"
  make -j "$jobs" libz.a
  make install
}

build_bzip2() {
  make -j "$jobs" libbz2.a CFLAGS="$CFLAGS -D_FILE_OFFSET_BITS=64"
  cp libbz2.a "$prefix/lib/"
  cp bzlib.h "$prefix/include/"
}

build_xz() {
  ./configure --prefix="$prefix" --libdir="$prefix/lib" --disable-shared --disable-xz --disable-xzdec \
    --disable-lzmadec --disable-lzmainfo --disable-scripts --disable-doc --disable-nls
  make -j "$jobs"
  make install
}

build_zstd() {
  build_with_cmake build/cmake -DZSTD_BUILD_SHARED=OFF -DZSTD_BUILD_PROGRAMS=OFF \
    -DZSTD_BUILD_TESTS=OFF -DZSTD_LEGACY_SUPPORT=OFF
}

build_lz4() { build_with_cmake build/cmake -DBUILD_STATIC_LIBS=ON -DLZ4_BUILD_CLI=OFF; }

# The OpenSSL configuration of a machine is for its own OpenSSL, which may be another version: do
# not read openssl.cnf, and load no modules. Omit algorithms that current servers do not use:
# OpenSSL would be the largest part of the wheel.
build_openssl() {
  ./Configure --prefix="$prefix" --libdir=lib --openssldir=/etc/ssl no-shared no-module no-tests \
    no-docs no-apps no-autoload-config no-legacy no-engine no-comp no-dtls no-quic no-srp no-srtp \
    no-psk no-ssl3 no-nextprotoneg no-cms no-cmp no-ts no-ct no-rfc3779 no-dso no-ui-console \
    no-aria no-bf no-blake2 no-camellia no-cast no-des no-dsa no-ec2m no-gost no-idea no-md4 no-mdc2 \
    no-ml-dsa no-multiblock no-ocb no-rc2 no-rc4 no-rmd160 no-scrypt no-seed no-siphash no-siv \
    no-slh-dsa no-sm2 no-sm3 no-sm4 no-whirlpool ${CFLAGS/-O2/-Os} -fno-asynchronous-unwind-tables
  make -j "$jobs" build_libs
  make install_dev
}

# Only http, https and S3's signatures. Shardwise itself finds the certificates.
build_curl() {
  build_with_cmake . -DBUILD_CURL_EXE=OFF -DBUILD_STATIC_LIBS=ON -DBUILD_LIBCURL_DOCS=OFF \
    -DBUILD_MISC_DOCS=OFF -DENABLE_CURL_MANUAL=OFF -DHTTP_ONLY=ON -DCURL_USE_OPENSSL=ON \
    -DCURL_USE_PKGCONFIG=OFF -DCURL_DISABLE_OPENSSL_AUTO_LOAD_CONFIG=ON -DCURL_CA_BUNDLE=none \
    -DCURL_CA_PATH=none -DCURL_CA_SEARCH_SAFE=OFF -DCURL_ZLIB=OFF -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF \
    -DCURL_USE_LIBPSL=OFF -DCURL_USE_LIBSSH2=OFF -DCURL_USE_GSSAPI=OFF -DCURL_DISABLE_LDAP=ON \
    -DCURL_DISABLE_NTLM=ON -DCURL_DISABLE_KERBEROS_AUTH=ON -DCURL_DISABLE_NEGOTIATE_AUTH=ON \
    -DCURL_DISABLE_DIGEST_AUTH=ON -DCURL_DISABLE_COOKIES=ON -DCURL_DISABLE_HSTS=ON \
    -DCURL_DISABLE_ALTSVC=ON -DCURL_DISABLE_DOH=ON -DCURL_DISABLE_MIME=ON -DCURL_DISABLE_NETRC=ON \
    -DCURL_DISABLE_WEBSOCKETS=ON -DUSE_NGHTTP2=OFF -DUSE_LIBIDN2=OFF -DENABLE_THREADED_RESOLVER=ON
}

build_libarchive() {
  build_with_cmake . -DENABLE_TEST=OFF -DENABLE_TAR=OFF -DENABLE_CPIO=OFF -DENABLE_CAT=OFF \
    -DENABLE_UNZIP=OFF -DENABLE_WERROR=OFF -DENABLE_OPENSSL=OFF -DENABLE_MBEDTLS=OFF \
    -DENABLE_NETTLE=OFF -DENABLE_LIBB2=OFF -DENABLE_LIBXML2=OFF -DENABLE_EXPAT=OFF \
    -DENABLE_WIN32_XMLLITE=OFF -DENABLE_PCREPOSIX=OFF -DENABLE_PCRE2POSIX=OFF -DENABLE_ACL=OFF \
    -DENABLE_XATTR=OFF -DENABLE_LZO=OFF
}

build_sqlite() {
  cc $CFLAGS -DNDEBUG -DSQLITE_THREADSAFE=1 -DSQLITE_ENABLE_COLUMN_METADATA \
    -DSQLITE_ENABLE_MATH_FUNCTIONS -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_SOUNDEX -DHAVE_ISNAN -c sqlite3.c -o sqlite3.o
  ar crs "$prefix/lib/libsqlite3.a" sqlite3.o
  cp sqlite3.h "$prefix/include/"
}

build_libjpeg-turbo() {
  build_with_cmake . -DENABLE_SHARED=OFF -DENABLE_STATIC=ON -DWITH_TURBOJPEG=OFF -DREQUIRE_SIMD=ON \
    -DWITH_TOOLS=OFF -DWITH_TESTS=OFF
}

build_libpng() {
  build_with_cmake . -DPNG_SHARED=OFF -DPNG_STATIC=ON -DPNG_TESTS=OFF -DPNG_TOOLS=OFF
}

build_libwebp() {
  build_with_cmake . -DWEBP_BUILD_ANIM_UTILS=OFF -DWEBP_BUILD_CWEBP=OFF -DWEBP_BUILD_DWEBP=OFF \
    -DWEBP_BUILD_GIF2WEBP=OFF -DWEBP_BUILD_IMG2WEBP=OFF -DWEBP_BUILD_VWEBP=OFF \
    -DWEBP_BUILD_WEBPINFO=OFF -DWEBP_BUILD_WEBPMUX=OFF -DWEBP_BUILD_EXTRAS=OFF
}

build_highway() {
  build_with_cmake . -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF
}

build_xxhash() { cp xxhash.h xxh3.h "$prefix/include/"; }

# Only headers, and the file by which CMake finds them.
build_boost() {
  cp -r boost "$prefix/include/"
  local package=$prefix/lib/cmake/Boost-$1
  mkdir -p "$package"
  # shellcheck disable=SC2016  # these are CMake's variables
  printf '%s\n' 'get_filename_component(Boost_INCLUDE_DIRS "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)' \
    >"$package/BoostConfig.cmake"
  printf '%s\n' "set(PACKAGE_VERSION $1)" 'if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)' \
    '  set(PACKAGE_VERSION_COMPATIBLE TRUE)' 'endif()' >"$package/BoostConfigVersion.cmake"
}

build_json() { build_with_cmake . -DJSON_BuildTests=OFF; }

build_fmt() { build_with_cmake . -DFMT_TEST=OFF -DFMT_DOC=OFF; }

build_cli11() {
  build_with_cmake . -DCLI11_BUILD_TESTS=OFF -DCLI11_BUILD_EXAMPLES=OFF -DCLI11_BUILD_DOCS=OFF
}

# Only the containers and codecs of src/decode/video/libav.cc, and only the parts under the LGPL: without
# --enable-gpl. AV1 would need another library.
build_ffmpeg() {
  ./configure --prefix="$prefix" --disable-shared --enable-static --enable-pic --disable-debug \
    --disable-programs --disable-doc --disable-autodetect --disable-network --disable-avdevice \
    --disable-avfilter --disable-everything --enable-zlib \
    --enable-demuxer=mov,matroska,wav,flac,mp3,ogg \
    --enable-decoder=h264,hevc,vp8,vp9,mpeg4,mpeg2video,mpeg1video,h263,mjpeg,ffv1,prores,theora \
    --enable-decoder=aac,mp3float,mp2float,flac,alac,vorbis,opus,ac3,eac3,adpcm_ms,adpcm_ima_wav \
    --enable-decoder='pcm_*' \
    --enable-parser=h264,hevc,vp8,vp9,mpeg4video,mpegvideo,h263,mjpeg,aac,mpegaudio,flac,vorbis,opus,ac3 \
    --extra-cflags="-I$prefix/include -fvisibility=hidden -ffunction-sections -fdata-sections" \
    --extra-ldflags="-L$prefix/lib"
  make -j "$jobs"
  make install
}

# ---- Sources and licences.

# Prints the path of the source. Downloads it if necessary.
source_of() {  # NAME VERSION SHA256 URL
  local file=$sources/$1-$2.tar.${4##*.tar.}
  if [[ ! -e $file ]]; then
    curl --fail --silent --show-error --location --retry 3 --output "$file.part" "$4" >&2 ||
      fail "cannot download $4: try again, or put it there by hand, as $file"
    mv "$file.part" "$file"
  fi
  printf '%s  %s\n' "$3" "$file" | sha256sum --check --status ||
    fail "$file is not what $(basename "$list") says (SHA-256 $3): remove it, and run this again"
  printf '%s' "$file"
}

licence_of() {  # NAME: prints the files that a wheel must include
  case $1 in
    curl | libarchive) say COPYING ;;
    xz) say COPYING.0BSD ;;
    lz4) say lib/LICENSE ;;
    openssl) say LICENSE.txt ;;
    libjpeg-turbo) say LICENSE.md README.ijg ;;
    libwebp) say COPYING PATENTS ;;
    highway) say LICENSE LICENSE-BSD3 ;;
    boost) say LICENSE_1_0.txt ;;
    json) say LICENSE.MIT ;;
    ffmpeg) say LICENSE.md COPYING.LGPLv2.1 ;;
    *) say LICENSE ;;
  esac
}

keep_licence() {  # NAME
  mkdir -p "$prefix/licenses/$1"
  if [[ $1 == sqlite ]]; then # SQLite's header says that it is in the public domain
    sed '/\*\//q' sqlite3.h >"$prefix/licenses/$1/LICENSE"
  else
    # shellcheck disable=SC2046  # one word a file
    cp $(licence_of "$1") "$prefix/licenses/$1/"
  fi
}

unpack() {  # NAME ARCHIVE
  local members=()
  # Only its headers are needed, a tenth of the archive.
  [[ $1 != boost ]] || members=(--wildcards '*/boost/*' '*/LICENSE_1_0.txt')
  tar --extract --file "$2" --strip-components=1 "${members[@]}"
}

build() {  # NAME VERSION SHA256 URL
  local stamp="$2 $3 $BUILT_BY" archive
  [[ $(cat "$prefix/built/$1" 2>/dev/null) != "$stamp" ]] || return 0
  archive=$(source_of "$@") || exit 1
  local start=$SECONDS
  rm -rf "$prefix/work"
  mkdir "$prefix/work"
  local status=0
  set +e # bash ignores set -e within a command whose status is tested
  (
    set -e
    cd "$prefix/work"
    unpack "$1" "$archive"
    "build_$1" "$2"
    keep_licence "$1"
  ) >"$prefix/built/$1.log" 2>&1 </dev/null
  status=$?
  set -e
  if [[ $status -ne 0 ]]; then
    tail -n 30 "$prefix/built/$1.log" >&2
    fail "$1 $2 was not built: see above, and all of it in $prefix/built/$1.log"
  fi
  rm -rf "$prefix/work"
  printf '%s\n' "$stamp" >"$prefix/built/$1"
  say "$1 $2: built in $((SECONDS - start)) s"
}

main() {
  local name version sum url
  while read -r name version sum url <&3; do
    [[ -z $name || $name == '#'* ]] || build "$name" "$version" "$sum" "$url"
  done 3<"$list"
  say "all libraries are in $prefix"
}

main; exit # on one line, so that bash reads nothing that is edited while it runs
