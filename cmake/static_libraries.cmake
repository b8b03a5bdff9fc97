# For builds that include their libraries, e.g. for wheels: -D SHARDWISE_STATIC_PREFIX=FOLDER takes
# all libraries from that folder, into which tools/wheel/build_libraries.sh has installed static
# ones. A static library does not list the libraries that it needs itself; this file adds them.
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
list(PREPEND CMAKE_PREFIX_PATH "${SHARDWISE_STATIC_PREFIX}")
set(ENV{PKG_CONFIG_LIBDIR} "${SHARDWISE_STATIC_PREFIX}/lib/pkgconfig")
link_directories("${SHARDWISE_STATIC_PREFIX}/lib")
include_directories(SYSTEM "${SHARDWISE_STATIC_PREFIX}/include")

foreach(package IN ITEMS ZLIB BZip2 LibLZMA OpenSSL LibArchive SQLite3 JPEG PNG)
  find_package(${package} REQUIRED)
endforeach()
find_package(CURL CONFIG REQUIRED)
set_property(TARGET LibArchive::LibArchive APPEND PROPERTY
  INTERFACE_LINK_LIBRARIES zstd lz4 LibLZMA::LibLZMA BZip2::BZip2 ZLIB::ZLIB)
find_package(PkgConfig REQUIRED)
pkg_check_modules(webp REQUIRED IMPORTED_TARGET GLOBAL libwebp)
set_property(TARGET PkgConfig::webp APPEND PROPERTY INTERFACE_LINK_LIBRARIES sharpyuv m)
if(SHARDWISE_WITH_VIDEO)
  pkg_check_modules(LIBAV REQUIRED IMPORTED_TARGET GLOBAL
                    libavformat libavcodec libswresample libswscale libavutil)
  # pkg-config also names libm, which CMake finds as libm.a: that is not for a shared library.
  set_property(TARGET PkgConfig::LIBAV PROPERTY
    INTERFACE_LINK_LIBRARIES avformat avcodec swresample swscale avutil z m)
  # FFmpeg's assembly refers to its own symbols without the table of a shared library.
  add_link_options(-Wl,-Bsymbolic)
endif()

# Lets the linker drop unused code.
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections -Wl,--exclude-libs,ALL)

# Fail if CMake found one of these libraries elsewhere on this system.
foreach(variable IN ITEMS ZLIB_LIBRARY_RELEASE BZIP2_LIBRARY_RELEASE LIBLZMA_LIBRARY_RELEASE
        OPENSSL_SSL_LIBRARY OPENSSL_CRYPTO_LIBRARY LibArchive_LIBRARY SQLite3_LIBRARY
        JPEG_LIBRARY_RELEASE PNG_LIBRARY_RELEASE)
  string(FIND "${${variable}}" "${SHARDWISE_STATIC_PREFIX}/" position)
  if(NOT position EQUAL 0)
    message(FATAL_ERROR "${variable} is '${${variable}}', which is not in ${SHARDWISE_STATIC_PREFIX}: "
                        "run tools/wheel/build_libraries.sh ${SHARDWISE_STATIC_PREFIX}")
  endif()
endforeach()
