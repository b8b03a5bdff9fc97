# Installs the libraries with their headers, the programs, the pages, and the package for
# find_package(shardwise [COMPONENTS loader video libtorch]).
#
# Each rule names its component: the package that cmake/packages.cmake makes of it.
include(CMakePackageConfigHelpers)

set(SHARDWISE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/shardwise)

# Check first that everything is built. Otherwise the installation would stop halfway.
set(SHARDWISE_BUILT)
foreach(target IN ITEMS shardwise shardwise_loader shardwise_video shardwise_libtorch shardwise_program
                        shardwise_train)
  if(TARGET ${target})
    get_target_property(type ${target} TYPE)
    if(NOT type STREQUAL "INTERFACE_LIBRARY")
      list(APPEND SHARDWISE_BUILT "$<TARGET_FILE:${target}>")
    endif()
  endif()
endforeach()
if(TARGET shardwise_manual_pages)
  get_target_property(SHARDWISE_PAGES_DIR shardwise_manual_pages PAGES_DIR)
  list(APPEND SHARDWISE_BUILT ${SHARDWISE_PAGES_DIR}/man1/shardwise.1)
endif()
install(CODE "
  set(files \"${SHARDWISE_BUILT}\")
  foreach(file IN LISTS files)
    if(NOT EXISTS \"\${file}\")
      message(FATAL_ERROR \"Nothing was installed: build everything first, with cmake --build ${PROJECT_BINARY_DIR}; \${file} is not built\")
    endif()
  endforeach()")

function(shardwise_install_library target export component)
  install(TARGETS ${target} EXPORT shardwise-${export}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component}-dev
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component}
                  NAMELINK_COMPONENT ${component}-dev
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
  install(EXPORT shardwise-${export} NAMESPACE shardwise:: DESTINATION ${SHARDWISE_PACKAGE_DIR}
          COMPONENT ${component}-dev)
endfunction()

shardwise_install_library(shardwise core core)
install(DIRECTORY include/shardwise DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT core-dev
        FILES_MATCHING PATTERN "*.h"
        PATTERN libtorch EXCLUDE
        PATTERN libtorch.h EXCLUDE
        PATTERN video.h EXCLUDE
        PATTERN audio_reader.h EXCLUDE
        PATTERN video_reader.h EXCLUDE)

if(TARGET shardwise_loader)
  shardwise_install_library(shardwise_loader loader core)
endif()

if(TARGET shardwise_video)
  shardwise_install_library(shardwise_video video video)
  install(FILES include/shardwise/video.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardwise
          COMPONENT video-dev)
  install(FILES include/shardwise/decode/audio_reader.h include/shardwise/decode/video_reader.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardwise/decode COMPONENT video-dev)
endif()

if(TARGET shardwise_libtorch)
  shardwise_install_library(shardwise_libtorch libtorch libtorch)
  install(FILES include/shardwise/libtorch.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardwise
          COMPONENT libtorch-dev)
  install(DIRECTORY include/shardwise/libtorch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardwise
          COMPONENT libtorch-dev FILES_MATCHING PATTERN "*.h")
endif()

# Shared libraries find each other in their own folder, wherever they are installed.
foreach(library IN ITEMS shardwise_loader shardwise_video shardwise_libtorch)
  if(TARGET ${library})
    set_target_properties(${library} PROPERTIES INSTALL_RPATH "$ORIGIN")
  endif()
endforeach()

# The programs, with their manual pages and completions.
set(SHARDWISE_BASH_DIR ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
set(SHARDWISE_ZSH_DIR ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
set(SHARDWISE_FISH_DIR ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
if(TARGET shardwise_program)
  install(TARGETS shardwise_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  install(DIRECTORY ${SHARDWISE_PAGES_DIR}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program
          PATTERN shardwise-train.1 EXCLUDE)
  install(FILES ${SHARDWISE_PAGES_DIR}/cli.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT doc)
  install(FILES ${SHARDWISE_PAGES_DIR}/bash/shardwise DESTINATION ${SHARDWISE_BASH_DIR} COMPONENT program)
  install(FILES ${SHARDWISE_PAGES_DIR}/zsh/_shardwise DESTINATION ${SHARDWISE_ZSH_DIR} COMPONENT program)
  install(FILES ${SHARDWISE_PAGES_DIR}/fish/shardwise.fish DESTINATION ${SHARDWISE_FISH_DIR} COMPONENT program)
endif()
if(TARGET shardwise_train)
  install(TARGETS shardwise_train RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT train)
  install(FILES ${SHARDWISE_PAGES_DIR}/man1/shardwise-train.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
          COMPONENT train)
  install(FILES ${SHARDWISE_PAGES_DIR}/bash/shardwise-train DESTINATION ${SHARDWISE_BASH_DIR} COMPONENT train)
  install(FILES ${SHARDWISE_PAGES_DIR}/zsh/_shardwise-train DESTINATION ${SHARDWISE_ZSH_DIR} COMPONENT train)
  install(FILES ${SHARDWISE_PAGES_DIR}/fish/shardwise-train.fish DESTINATION ${SHARDWISE_FISH_DIR} COMPONENT train)
endif()

# The pages and the licence, in the same layout, so that links between pages work.
install(FILES README.md CHANGELOG.md CITATION.cff CONTRIBUTING.md SECURITY.md LICENSE
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc
        FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc
        FILES_MATCHING PATTERN "*.cc" PATTERN "CMakeLists.txt" PATTERN "*.ipynb" PATTERN "*.py"
        PATTERN "__pycache__" EXCLUDE)
# The source of shardwise-train is installed as an example of a whole program.
install(DIRECTORY tools/train/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/shardwise-train
        COMPONENT doc FILES_MATCHING PATTERN "*.cc" PATTERN "*.h")
install(FILES tests/faults.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/tests COMPONENT doc)

get_target_property(SHARDWISE_LIBRARY_TYPE shardwise TYPE)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/shardwise-config.cmake.in
  ${PROJECT_BINARY_DIR}/shardwise-config.cmake
  INSTALL_DESTINATION ${SHARDWISE_PACKAGE_DIR}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shardwise-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shardwise-config.cmake
              ${PROJECT_BINARY_DIR}/shardwise-config-version.cmake
        DESTINATION ${SHARDWISE_PACKAGE_DIR} COMPONENT core-dev)

include(${CMAKE_CURRENT_LIST_DIR}/pkg_config.cmake)

# `cmake --build BUILD-FOLDER --target uninstall` removes what the last `cmake --install` installed.
if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall
    COMMAND ${CMAKE_COMMAND} -D MANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
            -P ${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake
    VERBATIM)
  include(${CMAKE_CURRENT_LIST_DIR}/packages.cmake)
endif()
