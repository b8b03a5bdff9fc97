#pragma once

/// Marks what a shared build of the library exports; everything else is hidden.
#define SHARDWISE_EXPORT __attribute__((visibility("default")))

// Every header includes this one before anything that an older standard does not know.
#if __cplusplus <= 201703L  // as gcc 10 says of C++20: 201709
#error "Shardwise needs C++20: compile with -std=c++20, in CMake with CMAKE_CXX_STANDARD 20"
#endif
