#include "base/assert.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "base/decoder.h"
#include "base/fork.h"
#include "order/deal.h"
#include "order/permutation.h"
#include "storage/shard_pool.h"
#include "tar/sparse_tar_image.h"

// Violates one precondition of each module.

namespace shardwise {
namespace {

struct Shard {
  std::uint64_t size_bytes() const { return 1; }
  bool is_costly() const { return false; }
};

class AssertDeathTest : public testing::Test {
 protected:
  void SetUp() override {
#ifndef SHARDWISE_ASSERTS
    GTEST_SKIP() << "needs assertions; skipped because this build has none";
#endif
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(AssertDeathTest, AConditionThatDoesNotHoldIsNamedWithItsPlace) {
  const int three = 3;
  SHARDWISE_ASSERT(three == 3);
  EXPECT_DEATH(SHARDWISE_ASSERT(three == 4), "assert_test.cc:[0-9]+: assertion failed: three == 4");
}

TEST_F(AssertDeathTest, WaitingWithinASecondSection) {
  EXPECT_DEATH(
      {
        const ForkSection section;
        Mutex mutex;
        Condition condition;
        const Lock lock(mutex);
        condition.wait_for(mutex, std::chrono::nanoseconds(1));
      },
      "section_depth == 1");
}

TEST_F(AssertDeathTest, ADecoderOfWhatIsNotCompressed) {
  EXPECT_DEATH(make_decoder(Compression::kNone, {}), "compression != ");
}

TEST_F(AssertDeathTest, SkippingMoreOfATarThanMayBeLeftOut) {
  File file;
  const SparseTarImage::Keep keep;
  SparseTarImage::Writer writer(file, keep);
  EXPECT_DEATH(writer.skip(1), "skippable");
}

TEST_F(AssertDeathTest, APoolsShardThatDoesNotExist) {
  ShardPool<Shard> pool(2, [](std::uint64_t) { return std::make_unique<const Shard>(); });
  EXPECT_FALSE(pool.close(1));
  EXPECT_DEATH(pool.close(2), "number < ");
}

TEST_F(AssertDeathTest, DealingToNoRankOrWithoutPlaces) {
  EXPECT_DEATH(detail::Dealer(0), "world > 0");
  const std::array<std::uint64_t, 3> sizes{1, 2, 3};
  std::array<std::uint32_t, 2> ranks{};
  detail::Dealer dealer(2);
  EXPECT_DEATH(dealer.deal(0, sizes, ranks), "ranks.size");
}

#ifdef SHARDWISE_ASSERTS_HOT
TEST_F(AssertDeathTest, AHotConditionUnderSanitizers) {
  const Permutation permutation(10, Hash128{});
  EXPECT_DEATH(static_cast<void>(permutation(10)), "i < size");
}
#else
TEST_F(AssertDeathTest, AHotConditionIsNotEvaluatedHere) {
  int evaluated = 0;
  SHARDWISE_ASSERT_HOT(++evaluated == 2);
  EXPECT_EQ(evaluated, 0);
}
#endif

}  // namespace
}  // namespace shardwise
