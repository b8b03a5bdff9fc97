#pragma once

#include <cstdio>
#include <cstdlib>

// Preconditions, which documentation marks REQUIRES:, as code:
//
//   SHARDWISE_ASSERT(number < num_groups());
//
// A caller of this library that breaks one made a mistake; what a file, a server or a user's option
// can break is an Error instead. With SHARDWISE_ASSERTS (Debug builds, builds with tests, builds
// with sanitizers) a condition that does not hold ends the process and is printed. Otherwise it is
// compiled, and not evaluated.
//
// SHARDWISE_ASSERT_HOT is for functions that take some nanoseconds, and for conditions that look at
// every element. Only Debug builds and builds with sanitizers define SHARDWISE_ASSERTS_HOT, so that
// benches measure what users have.
//
// These macros change no layout, and public headers do not use them.

namespace shardwise::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void assertion_failed(const char* condition,
                                                                    const char* file,
                                                                    int line) noexcept {
  std::fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace shardwise::detail

#define SHARDWISE_CHECKED_ASSERT(...)   \
  ((__VA_ARGS__) ? static_cast<void>(0) \
                 : ::shardwise::detail::assertion_failed(#__VA_ARGS__, __FILE__, __LINE__))
#define SHARDWISE_UNCHECKED_ASSERT(...) static_cast<void>(true || (__VA_ARGS__))

#ifdef SHARDWISE_ASSERTS
#define SHARDWISE_ASSERT(...) SHARDWISE_CHECKED_ASSERT(__VA_ARGS__)
#else
#define SHARDWISE_ASSERT(...) SHARDWISE_UNCHECKED_ASSERT(__VA_ARGS__)
#endif

#ifdef SHARDWISE_ASSERTS_HOT
#define SHARDWISE_ASSERT_HOT(...) SHARDWISE_CHECKED_ASSERT(__VA_ARGS__)
#else
#define SHARDWISE_ASSERT_HOT(...) SHARDWISE_UNCHECKED_ASSERT(__VA_ARGS__)
#endif
