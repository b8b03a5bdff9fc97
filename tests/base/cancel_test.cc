#include "shardwise/base/cancel.h"

#include <thread>

#include "base/cancel_scope.h"
#include "shardwise/base/error.h"
#include "support/support.h"

namespace shardwise {
namespace {

TEST(CancelTokenTest, OfNobodyIsNeverCancelled) {
  EXPECT_FALSE(CancelToken().is_cancelled());
  EXPECT_NO_THROW(CancelToken().throw_if_cancelled());
  const std::atomic<bool>* const none = nullptr;
  EXPECT_FALSE(CancelToken(none).is_cancelled());
}

TEST(CancelTokenTest, HearsItsFlag) {
  std::atomic<bool> flag{false};
  const CancelToken token = &flag;
  EXPECT_FALSE(token.is_cancelled());
  flag = true;
  EXPECT_TRUE(token.is_cancelled());
  EXPECT_EQ(test::error_code([&] { token.throw_if_cancelled(); }), ErrorCode::kCancelled);
  EXPECT_THAT(test::error_text([&] { token.throw_if_cancelled(); }),
              testing::HasSubstr("cancelled on request"));
}

TEST(CancelTokenTest, MayBeAllThatKeepsTheFlag) {
  auto flag = std::make_shared<std::atomic<bool>>(true);
  const CancelToken token = std::shared_ptr<const std::atomic<bool>>(flag);
  const std::weak_ptr<std::atomic<bool>> watched = flag;
  flag.reset();
  EXPECT_FALSE(watched.expired());
  EXPECT_TRUE(token.is_cancelled());
}

TEST(CancelScopeTest, IsJoinedToTokensOfItsThread) {
  CancelToken::Flag own{false}, of_thread{false}, inner{false};
  EXPECT_FALSE(detail::CancelScope::joined({}).can_be_cancelled());
  CancelToken joined, alone, nested;
  {
    const detail::CancelScope scope(of_thread);
    joined = detail::CancelScope::joined(&own);
    alone = detail::CancelScope::joined({});
    EXPECT_TRUE(alone.can_be_cancelled());
    {
      const detail::CancelScope innermost(inner);
      nested = detail::CancelScope::joined({});
    }
    EXPECT_FALSE(alone.is_cancelled());
    std::thread([] { EXPECT_FALSE(detail::CancelScope::joined({}).can_be_cancelled()); }).join();
    of_thread = true;
    EXPECT_EQ(test::error_code([] { detail::CancelScope::throw_if_cancelled(); }),
              ErrorCode::kCancelled);
  }
  EXPECT_NO_THROW(detail::CancelScope::throw_if_cancelled());
  EXPECT_TRUE(joined.is_cancelled());
  EXPECT_TRUE(alone.is_cancelled());
  EXPECT_FALSE(nested.is_cancelled());
  of_thread = false;
  own = true;
  EXPECT_TRUE(joined.is_cancelled());
  EXPECT_FALSE(alone.is_cancelled());
  inner = true;
  EXPECT_TRUE(nested.is_cancelled());
}

}  // namespace
}  // namespace shardwise
