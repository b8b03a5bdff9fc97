#include "shardwise/libtorch/learning_rate.h"

#include <random>

#include "support/support.h"

namespace shardwise::libtorch {
namespace {

TEST(LearningRateTest, ItRisesToTheHighestAndFallsToZero) {
  EXPECT_DOUBLE_EQ(warm_up_cosine(0, 10, 1000, 2.0), 0.2);
  EXPECT_DOUBLE_EQ(warm_up_cosine(90, 10, 1000, 2.0), 2.0);
  EXPECT_DOUBLE_EQ(warm_up_cosine(100, 10, 1000, 2.0), 2.0);
  EXPECT_DOUBLE_EQ(warm_up_cosine(550, 10, 1000, 2.0), 1.0);
  EXPECT_NEAR(warm_up_cosine(1000, 10, 1000, 2.0), 0.0, 1e-15);
  EXPECT_NEAR(warm_up_cosine(2000, 10, 1000, 2.0), 0.0, 1e-15) << "a run that is longer than told";
  EXPECT_DOUBLE_EQ(warm_up_cosine(0, 10, 0, 2.0), 2.0) << "a run without samples";
  EXPECT_DOUBLE_EQ(warm_up_cosine(0, 10, 1000, 2.0, 0.0), 2.0) << "no warm-up";
}

TEST(LearningRateTest, ItDependsOnSamplesAndNotOnHowStepsAreSpread) {
  std::mt19937_64 random(test::random_seed());
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t total = 1 + random() % 100'000;
    const std::uint64_t before = total / 10 + 1 + random() % total;
    EXPECT_EQ(warm_up_cosine(before, 1 + random() % 100, total, 1e-3),
              warm_up_cosine(before, 1 + random() % 100, total, 1e-3));
    const std::uint64_t next = before + random() % total;
    EXPECT_LE(warm_up_cosine(next, 1, total, 1e-3), warm_up_cosine(before, 1, total, 1e-3));
  }
}

}  // namespace
}  // namespace shardwise::libtorch
