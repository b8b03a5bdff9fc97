# Debian packages by CPack, one for each component of cmake/install.cmake:
#   cpack -G DEB --config BUILD-FOLDER/CPackConfig.cmake
# tools/release.sh configures the build for them (shared libraries, prefix /usr) and checks them.
set(SHARDWISE_MAINTAINER "Shardwise authors <maintainers@shardwise.invalid>" CACHE STRING
    "Who answers for the Debian packages: NAME <ADDRESS>")
set(SHARDWISE_PACKAGE_RELEASE "1" CACHE STRING "Debian revision of the packages")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shardwise)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${SHARDWISE_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/package_files.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${SHARDWISE_PACKAGE_RELEASE})
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# dpkg-shlibdeps finds our own libraries here. The packages name each other explicitly.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
    ${PROJECT_BINARY_DIR}/src ${PROJECT_BINARY_DIR}/src/decode ${PROJECT_BINARY_DIR}/src/decode/video
    ${PROJECT_BINARY_DIR}/src/libtorch)

set(what "Shardwise reads samples of WebDataset tar shards by number, with exact epochs.\n")
set(this "(= ${PROJECT_VERSION}-${SHARDWISE_PACKAGE_RELEASE})")
set(CPACK_COMPONENTS_ALL)

# shardwise_package(<component> <package> <section> DEPENDS <list> SUMMARY <line> TEXT <lines>)
macro(shardwise_package component package section)
  cmake_parse_arguments(ARG "" "DEPENDS;SUMMARY;TEXT" "" ${ARGN})
  string(TOUPPER ${component} upper)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${ARG_DEPENDS}")
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${ARG_SUMMARY}\n${what}${ARG_TEXT}")
endmacro()

# shardwise_library_packages(<component> <name> <layer> DEPENDS <list> DEV_DEPENDS <list>)
macro(shardwise_library_packages component name layer)
  cmake_parse_arguments(LIB "" "DEPENDS;DEV_DEPENDS" "" ${ARGN})
  shardwise_package(${component} ${name}${SHARDWISE_SOVERSION} libs DEPENDS "${LIB_DEPENDS}"
    SUMMARY "indexed random access to WebDataset shards (${layer})"
    TEXT "This package contains the shared libraries:\n${layer}.")
  shardwise_package(${component}-dev ${name}-dev libdevel
    DEPENDS "${name}${SHARDWISE_SOVERSION} ${this}${LIB_DEV_DEPENDS}"
    SUMMARY "indexed random access to WebDataset shards (${layer}, headers)"
    TEXT "This package contains the headers and the files for CMake and\npkg-config: ${layer}.")
endmacro()

if(TARGET shardwise_loader)
  shardwise_library_packages(core libshardwise "core and loader")
else()
  shardwise_library_packages(core libshardwise "core")
endif()
set(core "libshardwise${SHARDWISE_SOVERSION} ${this}")
if(TARGET shardwise_video)
  shardwise_library_packages(video libshardwise-video "video and audio" DEPENDS "${core}"
    DEV_DEPENDS ", libshardwise-dev ${this}")
endif()
if(TARGET shardwise_libtorch)
  shardwise_library_packages(libtorch libshardwise-libtorch "LibTorch" DEPENDS "${core}"
    DEV_DEPENDS ", libshardwise-dev ${this}, libtorch-dev, nlohmann-json3-dev")
endif()
if(TARGET shardwise_program)
  shardwise_package(program shardwise science DEPENDS "${core}"
    SUMMARY "index, read, verify and pack WebDataset shards"
    TEXT "This package contains the program shardwise with its manual pages\nand completions.")
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "shardwise-doc, shardwise-train")
endif()
if(TARGET shardwise_train)
  shardwise_package(train shardwise-train science
    DEPENDS "libshardwise-libtorch${SHARDWISE_SOVERSION} ${this}, ${core}"
    SUMMARY "train a small network on WebDataset shards, data parallel"
    TEXT "This package contains the program shardwise-train, which uses LibTorch.")
endif()
shardwise_package(doc shardwise-doc doc
  SUMMARY "indexed random access to WebDataset shards (documentation)"
  TEXT "This package contains the pages and the examples.")
set(CPACK_DEBIAN_DOC_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DOC_PACKAGE_SHLIBDEPS OFF)
# Only tools/release.sh makes the source tarball. Without this, package_source would pack build folders.
set(CPACK_SOURCE_IGNORE_FILES "/build[^/]*/" "/\\.git/")
include(CPack)
