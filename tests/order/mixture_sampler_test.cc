#include <array>
#include <cmath>

#include "order/order_test_support.h"
#include "support/says.h"

namespace shardwise {
namespace {

using test::at_epoch;
using test::delivered;
using test::MixtureSampler;
using test::Samples;

std::vector<Mixture::Part> three_parts() {
  return {{.num_samples = 500, .weight = 5, .kind = Chunked{50, 2}},
          {.num_samples = 40, .weight = 1, .kind = Sequential{}},
          {.num_samples = 90, .weight = 2.5, .kind = Sharded{1}}};
}

/// Returns 630 samples. The borders of the data sets are borders of shards.
SampleSet three_sets() {
  return SampleSet::of_shards(Samples{500, 0, 40, 0, 30, 0, 25, 35}).with_fingerprint({1, 1});
}

Order mixed(std::uint64_t seed, std::uint64_t epoch_size = 0) {
  return {.seed = seed, .kind = Mixture{three_parts()}, .epoch_size = epoch_size};
}

TEST(MixtureSamplerTest, AnEpochIsProvenToBeAsOrdered) {
  const MixtureSampler sampler =
      at_epoch(MixtureSampler(three_sets(), mixed(1, 777), {.world_size = 5}), 3);
  EXPECT_FALSE(sampler.is_exact());
  EpochAudit audit({1, 1});
  audit.add(test::of_all_ranks(sampler));
  EXPECT_EQ(audit.verdict(sampler.expectation()).text(3),
            "epoch 3: 777 samples drawn from the mixture, as ordered: proven");
  EXPECT_FALSE(audit.verdict(at_epoch(sampler, 4).expectation()).proven);
}

TEST(MixtureSamplerTest, ATokenOfOtherWeightsOrShardsIsRefused) {
  const ResumeToken token = MixtureSampler(three_sets(), mixed(1, 400)).token_after(33);
  Order changed = mixed(1, 400);
  std::get<Mixture>(changed.kind).parts[0].weight = 6;
  EXPECT_ERROR(test::Says("the weights differ"),
               MixtureSampler(three_sets(), changed).resume(token));
  const SampleSet shards = SampleSet::of_shards(Samples{540, 30, 26, 34}).with_fingerprint({1, 1});
  EXPECT_ERROR(test::Says("shard lengths differ"),
               MixtureSampler(shards, mixed(1, 400)).resume(token));
}

// docs/formats/order.md, Mixtures, version 2.
TEST(MixtureSamplerTest, GoldenMixtureNeverChanges) {
  MixtureSampler sampler(three_sets(), mixed(17, 16));
  EXPECT_EQ(delivered(sampler), (Samples{622, 626, 402, 556, 312, 331, 541, 67, 435, 320, 415, 613,
                                         529, 300, 215, 345}));
  sampler.set_epoch(1'000'000);
  EXPECT_EQ(sampler[15], 503U);
}

TEST(MixtureSamplerTest, AnEpochIsAsLongAsAllDataSets) {
  EXPECT_EQ(MixtureSampler(three_sets(), mixed(17)).size(), 630U) << "by default";
  // A data set without samples and without weight is allowed.
  const MixtureSampler gaps(
      5, {.kind = Mixture{{{.num_samples = 0, .weight = 0}, {.num_samples = 5}, {0, 0}}}});
  EXPECT_EQ(delivered(gaps).size(), 5U);
}

TEST(MixtureSamplerTest, RefusesWhatCannotBeMixed) {
  const auto text = [](const SampleSet& samples, const std::vector<Mixture::Part>& parts) {
    return test::error_text([&] { MixtureSampler(samples, {.kind = Mixture{parts}}); });
  };
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(text(0, {}), HasSubstr("no data set"));
  EXPECT_THAT(text(5, {{.num_samples = 5, .weight = -1}}),
              test::Says("a weight is -1", "data set 0"));
  EXPECT_THAT(text(5, {{.num_samples = 5, .weight = NAN}}), HasSubstr("a weight is nan"));
  EXPECT_THAT(text(5, {{.num_samples = 5, .weight = 0}}), HasSubstr("no weight is above 0"));
  EXPECT_THAT(text(5, {{.num_samples = 5}, {.num_samples = 0}}),
              test::Says("is empty", "data set 1"));
  EXPECT_THAT(text(5, {{.num_samples = 5, .kind = Sharded{}}}), HasSubstr("needs the shards"));
  EXPECT_THAT(text(SampleSet::of_shards(Samples{4, 6}),
                   {{.num_samples = 5}, {.num_samples = 5, .kind = Sharded{}}}),
              test::Says("do not match", "data set 1"));
  EXPECT_THAT(text(9, {{.num_samples = 5}, {.num_samples = 5}}),
              test::Says("than the 9", "data set 1"));
  EXPECT_THAT(text(11, {{.num_samples = 5}, {.num_samples = 5}}),
              test::Says("10 samples", "add up to 11"));
  EXPECT_THAT(text(5, {{.num_samples = 5, .kind = Chunked{.chunk_size = 0}}}),
              HasSubstr("chunk_size is 0"));
  EXPECT_THAT(text(5, {{.num_samples = 5, .kind = Chunked{.window = 0}}}),
              HasSubstr("window is 0"));
  const Order one{.kind = Mixture{{{.num_samples = 5}}}};
  MixtureSampler sampler(5, one);
  EXPECT_ERROR(test::Says("at most 2^62 samples"), sampler.set_epoch(kMaxSamples));
}

}  // namespace
}  // namespace shardwise
