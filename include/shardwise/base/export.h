#pragma once

/// Marks the symbols that a shared build of the library exports. All others are hidden.
#define SHARDWISE_EXPORT __attribute__((visibility("default")))

// Every header includes this one before it uses anything newer than C++17.
#if __cplusplus <= 201703L  // gcc 10 reports 201709 for C++20
#error "Shardwise needs C++20: compile with -std=c++20, in CMake with CMAKE_CXX_STANDARD 20"
#endif
