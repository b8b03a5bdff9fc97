#include "shardwise/base/cancel.h"

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

}  // namespace
}  // namespace shardwise
