#pragma once

#include <gmock/gmock.h>

#include "shardwise/base/error.h"
#include "support/support.h"

namespace shardwise::test {

/// Matches a text that contains all `parts`.
template <class... Parts>
auto Says(const Parts&... parts) {
  return testing::AllOf(testing::HasSubstr(parts)...);
}

/// Expects that an expression throws a shardwise::Error whose text matches, e.g.
/// EXPECT_ERROR(Says("no sample 7", "[0, 5)"), data[7]).
#define EXPECT_ERROR(matcher, ...) \
  EXPECT_THAT(::shardwise::test::error_text([&] { static_cast<void>(__VA_ARGS__); }), matcher)

/// Expects that an expression throws a shardwise::Error of this code, e.g. kNotFound.
#define EXPECT_CODE(code, ...)                                                      \
  EXPECT_EQ(::shardwise::test::error_code([&] { static_cast<void>(__VA_ARGS__); }), \
            ::shardwise::ErrorCode::code)

}  // namespace shardwise::test
