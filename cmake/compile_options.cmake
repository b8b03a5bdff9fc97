# shardwise_compile_options: what every target of this project compiles with. Not exported.
add_library(shardwise_compile_options INTERFACE)
# Programs, tests and benches of this project may use the library's private headers.
target_include_directories(shardwise_compile_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
if(SHARDWISE_DEVELOPER)
  target_compile_options(shardwise_compile_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                                             -Wnon-virtual-dtor)
else()
  # Whoever builds to use it can do nothing about a warning.
  target_compile_options(shardwise_compile_options INTERFACE -w)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on `"literal" + std::string` (GCC bugs 105329 and 105651).
  target_compile_options(shardwise_compile_options INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # What src/base/thread_annotations.h declares is checked: who holds which lock, and in which order.
  target_compile_options(shardwise_compile_options INTERFACE -Wthread-safety -Wthread-safety-beta)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A class of a source file may hold what that file alone has: there it is no header.
  target_compile_options(shardwise_compile_options INTERFACE -Wno-subobject-linkage)
endif()
# src/base/assert.h: preconditions are checked. All of the project is compiled alike, so that the private
# headers' inline functions are the same everywhere.
string(COMPARE NOTEQUAL "${SHARDWISE_SANITIZE}" "" SHARDWISE_IS_SANITIZED)  # a list of several has commas
target_compile_definitions(shardwise_compile_options INTERFACE
  $<$<OR:$<CONFIG:Debug>,$<BOOL:${SHARDWISE_BUILD_TESTS}>,$<BOOL:${SHARDWISE_IS_SANITIZED}>>:SHARDWISE_ASSERTS>
  $<$<OR:$<CONFIG:Debug>,$<BOOL:${SHARDWISE_IS_SANITIZED}>>:SHARDWISE_ASSERTS_HOT>)
if(SHARDWISE_DEVELOPER)
  target_compile_options(shardwise_compile_options INTERFACE -Werror)
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(SHARDWISE_CCACHE ccache)
  if(SHARDWISE_CCACHE)
    # Paths below the source are hashed relative to it, and the compiler by its content: a clone elsewhere,
    # or in a bare root of the same release, finds what was compiled here.
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
        ${SHARDWISE_CCACHE})
    set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    # __FILE__, which stands in the texts of assertions and tests, is relative, too.
    add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
  endif()
endif()
if(SHARDWISE_SANITIZE)
  # Usage requirements of every target, so that what links the library is instrumented too.
  add_compile_options(-fsanitize=${SHARDWISE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SHARDWISE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # False alarms in instrumented standard headers (std::regex), as gcc's manual warns.
    target_compile_options(shardwise_compile_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
