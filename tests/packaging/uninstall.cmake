# Installs a build into a new folder, uninstalls it, and fails if a file or a folder of ours is left:
#   cmake -D BUILD=FOLDER -D PREFIX=FOLDER -P uninstall.cmake
# The list of the files is a copy: other installations of the build write their own meanwhile.
file(REMOVE_RECURSE ${PREFIX})
file(MAKE_DIRECTORY ${PREFIX}/bin)
file(TOUCH ${PREFIX}/bin/not_ours)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX}
                OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(Installing|Up-to-date): [^\n]+" lines "${lines}")
list(TRANSFORM lines REPLACE "^[A-Za-z-]+: " "")
set(files)
foreach(line IN LISTS lines)
  if(NOT IS_DIRECTORY ${line})
    list(APPEND files ${line})
  endif()
endforeach()
list(LENGTH files number)
if(number LESS 100)
  message(FATAL_ERROR "Only ${number} files were installed")
endif()
list(JOIN files "\n" text)
file(WRITE ${PREFIX}.manifest.txt "${text}\n")
execute_process(COMMAND ${CMAKE_COMMAND} -D MANIFEST=${PREFIX}.manifest.txt
                        -P ${CMAKE_CURRENT_LIST_DIR}/../../cmake/uninstall.cmake
                COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE left LIST_DIRECTORIES false ${PREFIX}/*)
if(NOT left STREQUAL "${PREFIX}/bin/not_ours")
  message(FATAL_ERROR "left behind, or removed too much: ${left}")
endif()
file(GLOB_RECURSE folders LIST_DIRECTORIES true ${PREFIX}/*)
list(FILTER folders INCLUDE REGEX "/shardwise(/|$)")
if(folders)
  message(FATAL_ERROR "left behind: ${folders}")
endif()
