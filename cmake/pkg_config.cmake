# Creates shardwise.pc, shardwise-loader.pc and shardwise-video.pc for pkg-config; LibTorch has no
# such file. The prefix is relative to the file's own path, so that an installation can be moved.
file(RELATIVE_PATH SHARDWISE_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" SHARDWISE_PC_TO_PREFIX "${SHARDWISE_PC_TO_PREFIX}")

function(shardwise_install_pc name library component description libs)
  list(JOIN ARGN ", " requires)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/shardwise.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT ${component}-dev)
endfunction()

# The libraries that a static library needs. Not "Requires.private", since programs must also link
# without --static. bzip2 and threads lack .pc files on some systems.
get_target_property(library_type shardwise TYPE)
set(core)
set(core_libs)
set(loader shardwise)
set(video shardwise)
if(TARGET shardwise_loader)
  set(video shardwise-loader)
endif()
if(library_type STREQUAL "STATIC_LIBRARY")
  set(core sqlite3 libarchive zlib liblzma libcrypto libcurl libzstd liblz4)
  set(core_libs " -lbz2 -pthread")
  list(APPEND loader libhwy libarchive zlib)
  foreach(codec IN ITEMS JPEG PNG WEBP)
    if(SHARDWISE_WITH_${codec})
      string(TOLOWER lib${codec} module)
      list(APPEND loader ${module})
    endif()
  endforeach()
  list(APPEND video libavformat libavcodec libavutil libswscale libswresample)
endif()

shardwise_install_pc(shardwise shardwise core "${PROJECT_DESCRIPTION}" "${core_libs}" ${core})
if(TARGET shardwise_loader)
  shardwise_install_pc(shardwise-loader shardwise_loader core "Batches of a Shardwise data set" "" ${loader})
endif()
if(TARGET shardwise_video)
  shardwise_install_pc(shardwise-video shardwise_video video "Videos and sounds of a Shardwise data set" "" ${video})
endif()
