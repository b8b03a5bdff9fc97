#pragma once

#include <cstdio>
#include <cstdlib>

// Checks of preconditions that documentation marks REQUIRES:
//
//   SHARDWISE_ASSERT(number < num_groups());
//
// A failed check means that the caller has a bug. A bad file, server or option of the user throws
// an Error instead. SHARDWISE_ASSERTS is defined in Debug builds, builds with tests and builds with
// sanitizers. These builds print a false condition and abort. Other builds compile the condition
// but do not evaluate it.
//
// SHARDWISE_ASSERT_HOT is for functions that take nanoseconds, and for conditions that visit every
// element. Only Debug builds and builds with sanitizers define SHARDWISE_ASSERTS_HOT, so benchmarks
// measure the code that users run.
//
// The macros do not change the layout of any type. Public headers do not use them.

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
