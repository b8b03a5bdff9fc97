#include <cmath>
#include <set>

#include "base/counted.h"
#include "order/order_test_support.h"
#include "shardwise/order/explain.h"

namespace shardwise {
namespace {

using test::at_epoch;
using test::delivered;
using test::ResampledSampler;
using test::Samples;

Order by_sample(std::uint64_t seed, std::uint64_t epoch_size) {
  return {.seed = seed, .kind = Resampled{}, .epoch_size = epoch_size};
}

Order by_shard(std::uint64_t seed = 0, std::uint64_t epoch_size = 0) {
  return {.seed = seed, .kind = Resampled{Resampled::Unit::kShard}, .epoch_size = epoch_size};
}

SampleSet weighted(const std::vector<double>& weights) {
  return SampleSet(weights.size()).with_column([weights](const std::string& name) {
    if (name != "w") throw InvalidArgument("no such column: " + name);
    return weights;
  });
}

Order by_weight(std::uint64_t seed, std::uint64_t epoch_size = 0) {
  return {.seed = seed, .kind = Resampled{.weights = "w"}, .epoch_size = epoch_size};
}

double coverage(const Samples& samples, std::uint64_t n) {
  return static_cast<double>(std::set<std::uint64_t>(samples.begin(), samples.end()).size()) /
         static_cast<double>(n);
}

TEST(ResampledSamplerTest, CoversAsMuchAsExpected) {
  for (const std::uint64_t draws : {10000U, 20000U, 50000U}) {
    const ResampledSampler sampler(20000, by_sample(1, draws));
    EXPECT_NEAR(coverage(delivered(sampler), 20000),
                1 - std::exp(static_cast<double>(draws) * std::log1p(-1.0 / 20000)), 0.01);
  }
}

TEST(ResampledSamplerTest, EverySampleIsEquallyLikely) {
  const std::vector<std::uint64_t> lengths{10, 3, 0, 25, 12};  // unequal on purpose
  for (const bool shards : {false, true}) {
    std::vector<double> counts(50);
    const std::uint64_t draws = 500'000;
    const ResampledSampler sampler(SampleSet::of_shards(lengths),
                                   shards ? by_shard(5, draws) : by_sample(5, draws));
    for (const std::uint64_t sample : delivered(sampler)) ++counts[sample];
    double chi_square = 0;
    for (const double count : counts) chi_square += (count - 1e4) * (count - 1e4) / 1e4;
    // There are 49 degrees of freedom. By shard, each draw delivers 10 samples together, which
    // multiplies the sum by 10.
    EXPECT_LT(chi_square, (49 + 4.5 * std::sqrt(98)) * (shards ? 10 : 1)) << shards;
  }
}

TEST(ResampledSamplerTest, ByShardReadsWholeEqualShardsInShuffledOrder) {
  const ResampledSampler sampler(SampleSet::of_shards(Samples(20, 30)), by_shard(3, 3000));
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
  Order order = by_shard(3, 4 * 300);
  order.streams = 4;
  const ResampledSampler sampler(SampleSet::of_shards(Samples(20, 30)), order, {.world_size = 4});
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const Samples samples = delivered(*sampler.for_rank(rank));
    ASSERT_EQ(samples.size(), 300U);
    for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(samples[i] / 30, samples[i / 30 * 30] / 30);
  }
}

TEST(ResampledSamplerTest, HasItsOwnLengthStreamsAndTails) {
  const ResampledSampler sampler(100, by_sample(1, 0), {.world_size = 4});
  EXPECT_EQ(sampler.size(), 25U);
  const ResampledSampler longer(100, by_sample(1, 600), {.world_size = 4});
  EXPECT_EQ(longer.size(), 150U);
  const Samples first = delivered(sampler);
  const Samples after = delivered(longer);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), after.begin()));
  EXPECT_EQ(at_epoch(longer, 1).size(), 150U);
  EXPECT_NE(delivered(at_epoch(longer, 1)), after);
  for (const Order::Tail tail : {Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad}) {
    Order order = by_sample(1, 21);
    order.tail = tail;
    order.streams = 2;
    const ResampledSampler uneven(SampleSet(100).with_fingerprint({1, 2}), order,
                                  {.rank = 3, .world_size = 4});
    EXPECT_EQ(uneven.size(), tail == Order::Tail::kPad ? 6U : 5U);
    if (tail == Order::Tail::kPad) {
      EXPECT_EQ(uneven[5], uneven.for_rank(2)->at(0));
    }
    EpochAudit audit({1, 2});
    audit.add(test::of_all_ranks(uneven));
    EXPECT_EQ(audit.verdict(uneven.expectation()).text(4),
              "epoch 4: " + counted(audit.sum().count, "sample") +
                  " drawn with replacement, as ordered: proven");
    const EpochAudit::Sum all = EpochAudit::Sum::of_range(0, 100, {1, 2});
    EXPECT_EQ(uneven.expectation(all).sum(), uneven.expectation().sum());
    // The proof detects a sample that replaces another, but cannot name the samples.
    const std::uint64_t more = uneven[0];
    EpochAudit::Sum sum = audit.sum();
    const std::uint64_t less = more == 0 ? 1 : 0;
    sum += EpochAudit::Sum::of({&more, 1}, {1, 2});
    sum -= EpochAudit::Sum::of({&less, 1}, {1, 2});
    audit.set_sum(sum);
    EXPECT_THAT(audit.verdict(uneven.expectation()).text(4),
                testing::HasSubstr("epoch 4: not as ordered: "));
  }
}

TEST(ResampledSamplerTest, DrawsByTheWeightsOfAColumn) {
  std::vector<double> weights(50, 1);
  weights[7] = 25;
  weights[8] = 0;
  weights[49] = 0.5;
  const ResampledSampler sampler(weighted(weights), by_weight(3, 100'000));
  std::vector<double> counts(50);
  for (const std::uint64_t sample : delivered(sampler)) ++counts[sample];
  EXPECT_NEAR(counts[7], 100'000 * 25 / 72.5, 600);
  EXPECT_EQ(counts[8], 0);
  EXPECT_NEAR(counts[49], 100'000 * 0.5 / 72.5, 120);
  EXPECT_NEAR(counts[0], 100'000 / 72.5, 170);
}

// docs/formats/order.md, Resampled orders, version 1.
TEST(ResampledSamplerTest, GoldenDrawsNeverChange) {
  EXPECT_EQ(delivered(at_epoch(ResampledSampler(1000, by_sample(17, 6)), 3)),
            (Samples{32, 159, 460, 70, 829, 800}));
  EXPECT_EQ(
      delivered(at_epoch(
          ResampledSampler(SampleSet::of_shards(Samples{3, 0, 7, 2, 5}), by_shard(17, 12)), 3)),
      (Samples{6, 5, 7, 4, 16, 15, 12, 13, 8, 7, 3, 4}));
  EXPECT_EQ(delivered(at_epoch(
                ResampledSampler(weighted({5, 1, 0, 2.5, 0.125, 3}), by_weight(17, 12)), 3)),
            (Samples{3, 3, 0, 3, 0, 0, 0, 5, 0, 5, 0, 0}));
}

TEST(ResampledSamplerTest, OtherWeightsAreAnotherOrder) {
  const ResampledSampler sampler(weighted({1, 2, 3}), by_weight(1));
  ResampledSampler same(weighted({2, 4, 6}), by_weight(1));
  EXPECT_NO_THROW(same.resume(sampler.token())) << "only ratios count";
  ResampledSampler other(weighted({1, 2, 4}), by_weight(1));
  EXPECT_THAT(test::error_text([&] { other.resume(sampler.token()); }),
              testing::HasSubstr("weights differ"));
  ResampledSampler plain(3, by_sample(1, 0));
  EXPECT_THAT(test::error_text([&] { plain.resume(sampler.token()); }),
              testing::HasSubstr("weights 'w' in the token, '' in this run"));
}

TEST(ResampledSamplerTest, SaysThatItIsNotExact) {
  const ResampledSampler sampler(100);
  EXPECT_FALSE(sampler.is_exact());
  EXPECT_FALSE(sampler.expectation().knows_times());
  EXPECT_THAT(test::error_text([&] { when_sample(sampler, 5); }),
              testing::HasSubstr("draws with replacement"));
  EXPECT_THAT(test::error_text([] { ResampledSampler(0); }),
              testing::HasSubstr("cannot draw from 0 samples"));
  EXPECT_THAT(test::error_text([] { ResampledSampler(10, by_shard()); }),
              testing::HasSubstr("needs the shards"));
  EXPECT_THAT(test::error_text([] { ResampledSampler(10, by_weight(1)); }),
              testing::AllOf(testing::HasSubstr("no columns"), testing::HasSubstr("column 'w'")));
  EXPECT_THAT(test::error_text([] {
                ResampledSampler(weighted({1, -1}), by_weight(1));
              }),
              testing::HasSubstr("sample 1"));
  Order order = by_shard();
  std::get<Resampled>(order.kind).weights = "w";
  EXPECT_THAT(test::error_text([&] { ResampledSampler(SampleSet::of_shards(Samples{3}), order); }),
              testing::AllOf(testing::HasSubstr("weights cannot be used"),
                             testing::HasSubstr("draws by shard")));
}

}  // namespace
}  // namespace shardwise
