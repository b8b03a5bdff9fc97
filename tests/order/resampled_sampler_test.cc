#include "shardwise/order/resampled_sampler.h"

#include <cmath>
#include <set>

#include "order/order_test_support.h"

namespace shardwise {
namespace {

using test::delivered;
using test::Samples;

OrderOptions by_shard(OrderOptions options = {}) {
  options.resample = ResampleUnit::kShard;
  return options;
}

double coverage(const Samples& samples, std::uint64_t n) {
  return static_cast<double>(std::set<std::uint64_t>(samples.begin(), samples.end()).size()) /
         static_cast<double>(n);
}

TEST(ResampledSamplerTest, CoversAsMuchAsExpected) {
  EXPECT_NEAR(ResampledSampler::expected_coverage(1'000'000, 1'000'000), 0.632, 0.001);
  EXPECT_DOUBLE_EQ(ResampledSampler::expected_coverage(1, 4), 0.25);
  EXPECT_DOUBLE_EQ(ResampledSampler::expected_coverage(0, 4), 0);
  EXPECT_DOUBLE_EQ(ResampledSampler::expected_coverage(5, 1), 1);
  for (const std::uint64_t draws : {10000U, 20000U, 50000U}) {
    const ResampledSampler sampler(20000, {.seed = 1, .epoch_size = draws});
    EXPECT_NEAR(coverage(delivered(sampler), 20000),
                ResampledSampler::expected_coverage(draws, 20000), 0.01);
  }
}

TEST(ResampledSamplerTest, EverySampleIsEquallyLikely) {
  const std::vector<std::uint64_t> lengths{10, 3, 0, 25, 12};  // unequal on purpose
  for (const bool shards : {false, true}) {
    std::vector<double> counts(50);
    const std::uint64_t draws = 500'000;
    const OrderOptions options{.seed = 5, .epoch_size = draws};
    const auto sampler = shards ? ResampledSampler(test::offsets_of(lengths), by_shard(options))
                                : ResampledSampler(50, options);
    for (const std::uint64_t sample : delivered(sampler)) ++counts[sample];
    double chi_square = 0;
    for (const double count : counts) chi_square += (count - 1e4) * (count - 1e4) / 1e4;
    // 49 degrees; by shard a draw hits its samples together, which widens the sum by its 10
    // samples.
    EXPECT_LT(chi_square, (49 + 4.5 * std::sqrt(98)) * (shards ? 10 : 1)) << shards;
  }
}

TEST(ResampledSamplerTest, ByShardReadsWholeEqualShardsInShuffledOrder) {
  const ResampledSampler sampler(test::offsets_of(std::vector<std::uint64_t>(20, 30)),
                                 by_shard({.seed = 3, .epoch_size = 3000}));
  const Samples samples = delivered(sampler);
  std::set<std::uint64_t> shards;
  std::size_t in_order = 0;
  for (std::size_t draw = 0; draw < 100; ++draw) {
    std::set<std::uint64_t> inside;
    for (std::size_t i = draw * 30; i < draw * 30 + 30; ++i) {
      EXPECT_EQ(samples[i] / 30, samples[draw * 30] / 30);
      inside.insert(samples[i]);
      if (i > draw * 30 && samples[i] == samples[i - 1] + 1) ++in_order;
    }
    EXPECT_EQ(inside.size(), 30U);
    shards.insert(samples[draw * 30] / 30);
  }
  EXPECT_GT(shards.size(), 15U);
  EXPECT_LT(in_order, 200U);
}

TEST(ResampledSamplerTest, ByShardWithAStreamForEachRankGivesRanksWholeShards) {
  const OrderOptions options =
      by_shard({.world_size = 4, .seed = 3, .streams = 4, .epoch_size = 4 * 300});
  const ResampledSampler sampler(test::offsets_of(std::vector<std::uint64_t>(20, 30)), options);
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const Samples samples = delivered(*sampler.for_rank(rank));
    ASSERT_EQ(samples.size(), 300U);
    for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(samples[i] / 30, samples[i / 30 * 30] / 30);
  }
}

TEST(ResampledSamplerTest, SeeksResumesAndSharesOutLikeAnExactOne) {
  for (const bool shards : {false, true}) {
    OrderOptions options{.seed = 3, .epoch_size = 1000};
    if (shards) options = by_shard(options);
    const ShardOffsets offsets = test::offsets_of(test::some_lengths(400, 50, 1));
    const Samples one = delivered(ResampledSampler(offsets, options));
    options.world_size = 3;
    const ResampledSampler three(offsets, options);
    for (std::uint64_t rank = 0; rank < 3; ++rank) {
      const auto mine = three.for_rank(rank);
      for (std::uint64_t i = 0; i < mine->size(); ++i) ASSERT_EQ(mine->at(i), one[i * 3 + rank]);
      mine->resume_at(500);
      ASSERT_EQ(mine->next(), one[500 + (rank + 1) % 3]) << rank;
    }
  }
}

TEST(ResampledSamplerTest, WithEpochAndRepeatSetItsLength) {
  ResampledSampler sampler(100, {.world_size = 4, .seed = 1});
  EXPECT_EQ(sampler.size(), 25U);
  const Samples before = delivered(sampler);
  sampler.with_epoch(200).repeat(3);
  EXPECT_EQ(sampler.size(), 150U);
  const Samples after = delivered(sampler);
  EXPECT_EQ(after.size(), 150U);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.size(), 150U);
  EXPECT_NE(delivered(sampler), after);
  EXPECT_EQ(test::error_code([&] { sampler.with_epoch(0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { sampler.repeat(~std::uint64_t{0}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { sampler.repeat(0); }), ErrorCode::kInvalidArgument);
}

TEST(ResampledSamplerTest, GoldenDrawsNeverChange) {
  EXPECT_EQ(delivered(ResampledSampler(1000, {.seed = 17, .epoch = 3, .epoch_size = 6})),
            (Samples{32, 159, 460, 70, 829, 800}));
  EXPECT_EQ(delivered(ResampledSampler(test::offsets_of({3, 0, 7, 2, 5}),
                                       by_shard({.seed = 17, .epoch = 3, .epoch_size = 12}))),
            (Samples{6, 5, 7, 4, 16, 15, 12, 13, 8, 7, 3, 4}));
}

TEST(ResampledSamplerTest, SaysThatItIsNotExact) {
  const ResampledSampler sampler(100);
  EXPECT_THAT(test::error_text([&] { sampler.deliveries(5); }),
              testing::HasSubstr("draws with replacement"));
  EXPECT_THAT(test::error_text([&] { static_cast<void>(sampler.expectation({})); }),
              testing::HasSubstr("cannot prove an epoch"));
  EXPECT_EQ(test::error_code([] { ResampledSampler{Samples{}}; }), ErrorCode::kInvalidArgument);
  EXPECT_THAT(test::error_text([] { ResampledSampler(10, by_shard()); }),
              testing::HasSubstr("shard offsets are not given"));
}

}  // namespace
}  // namespace shardwise
