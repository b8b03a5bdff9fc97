# shardwise_compile_options: the compile options of all targets of this project. Not exported.
add_library(shardwise_compile_options INTERFACE)
# Programs, tests and benches of this project may use the library's private headers.
target_include_directories(shardwise_compile_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
if(SHARDWISE_DEVELOPER)
  target_compile_options(shardwise_compile_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                                             -Wnon-virtual-dtor)
else()
  # No warnings: a user who builds Shardwise as a part of another project cannot fix them.
  target_compile_options(shardwise_compile_options INTERFACE -w)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # These warnings about `"literal" + std::string` are false (GCC bugs 105329 and 105651).
  target_compile_options(shardwise_compile_options INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # clang checks the annotations of src/base/thread_annotations.h: which locks are held, in which
  # order.
  target_compile_options(shardwise_compile_options INTERFACE -Wthread-safety -Wthread-safety-beta)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A unity build includes source files, so GCC takes them for headers, and warns of classes with
  # members whose types are in an unnamed namespace.
  target_compile_options(shardwise_compile_options INTERFACE -Wno-subobject-linkage)
endif()
# Check the preconditions of src/base/assert.h. The setting is the same for the whole project, so
# that inline functions of private headers are the same everywhere.
string(COMPARE NOTEQUAL "${SHARDWISE_SANITIZE}" "" SHARDWISE_IS_SANITIZED)  # a list has commas
target_compile_definitions(shardwise_compile_options INTERFACE
  $<$<OR:$<CONFIG:Debug>,$<BOOL:${SHARDWISE_BUILD_TESTS}>,$<BOOL:${SHARDWISE_IS_SANITIZED}>>:SHARDWISE_ASSERTS>
  $<$<OR:$<CONFIG:Debug>,$<BOOL:${SHARDWISE_IS_SANITIZED}>>:SHARDWISE_ASSERTS_HOT>)
if(SHARDWISE_DEVELOPER)
  target_compile_options(shardwise_compile_options INTERFACE -Werror)
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(SHARDWISE_CCACHE ccache)
  if(SHARDWISE_CCACHE)
    # ccache hashes paths below the source folder relative to it, and the compiler by its content. A
    # clone in another folder, or in a bare root of the same release, thus reuses what was compiled
    # here.
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
        ${SHARDWISE_CCACHE})
    set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
endif()
if(PROJECT_IS_TOP_LEVEL)
  # Make __FILE__ relative. Texts of assertions and tests contain it, and builds in different folders
  # give the same files.
  add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
endif()
if(SHARDWISE_SANITIZE)
  # All targets inherit the flags, so that whatever links the library is instrumented, too.
  add_compile_options(-fsanitize=${SHARDWISE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SHARDWISE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # False warnings in instrumented standard headers (std::regex), about which gcc's manual warns.
    target_compile_options(shardwise_compile_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
