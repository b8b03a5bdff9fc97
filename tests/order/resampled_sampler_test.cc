#include <cmath>
#include <set>

#include "base/counted.h"
#include "order/order_test_support.h"
#include "shardwise/order/explain.h"
#include "support/says.h"

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
  EXPECT_ERROR(test::Says("weights differ"), other.resume(sampler.token()));
  ResampledSampler plain(3, by_sample(1, 0));
  EXPECT_ERROR(test::Says("weights 'w' in the token, '' in this run"),
               plain.resume(sampler.token()));
}

TEST(ResampledSamplerTest, SaysThatItIsNotExact) {
  const ResampledSampler sampler(100);
  EXPECT_FALSE(sampler.is_exact());
  EXPECT_FALSE(sampler.expectation().knows_times());
  EXPECT_ERROR(test::Says("draws with replacement"), when_sample(sampler, 5));
  EXPECT_ERROR(test::Says("cannot draw from 0 samples"), ResampledSampler(0));
  EXPECT_ERROR(test::Says("needs the shards"), ResampledSampler(10, by_shard()));
  EXPECT_ERROR(test::Says("no columns", "column 'w'"), ResampledSampler(10, by_weight(1)));
  EXPECT_ERROR(test::Says("sample 1"), ResampledSampler(weighted({1, -1}), by_weight(1)));
  Order order = by_shard();
  std::get<Resampled>(order.kind).weights = "w";
  EXPECT_ERROR(test::Says("weights cannot be used", "draws by shard"),
               ResampledSampler(SampleSet::of_shards(Samples{3}), order));
}

}  // namespace
}  // namespace shardwise
