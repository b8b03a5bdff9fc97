#include <array>
#include <cmath>

#include "order/order_test_support.h"

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

TEST(MixtureSamplerTest, SharesFollowTheWeightsClosely) {
  const MixtureSampler sampler(three_sets(), mixed(3, 100'000));
  const std::vector<double> weights{5 / 8.5, 1 / 8.5, 2.5 / 8.5};
  std::array<std::uint64_t, 3> draws{};
  const Samples all = delivered(sampler);
  for (std::uint64_t slot = 0; slot < 100'000; ++slot) {
    if (slot % 256 == 0) {
      for (std::size_t d = 0; d < 3; ++d) {
        EXPECT_NEAR(static_cast<double>(draws[d]), weights[d] * static_cast<double>(slot), 2.5)
            << slot;
      }
    }
    ++draws[sampler.split(all[slot]).dataset];
  }
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

TEST(MixtureSamplerTest, ResumesOnAnotherNumberOfRanks) {
  const Samples whole = delivered(at_epoch(MixtureSampler(three_sets(), mixed(1, 400)), 1));
  MixtureSampler before =
      at_epoch(MixtureSampler(three_sets(), mixed(1, 400), {.world_size = 4}), 1);
  before.seek(33);
  const std::string saved = before.token().to_text();
  MixtureSampler after(three_sets(), mixed(1, 400));
  after.resume(ResumeToken::from_text(saved));
  EXPECT_EQ(test::drain(after), Samples(whole.begin() + 132, whole.end()));
  Order changed = mixed(1, 400);
  std::get<Mixture>(changed.kind).parts[0].weight = 6;
  MixtureSampler other(three_sets(), changed);
  EXPECT_THAT(test::error_text([&] { other.resume(ResumeToken::from_text(saved)); }),
              testing::HasSubstr("the weights differ"));
  MixtureSampler shards(SampleSet::of_shards(Samples{540, 30, 26, 34}).with_fingerprint({1, 1}),
                        mixed(1, 400));
  EXPECT_THAT(test::error_text([&] { shards.resume(ResumeToken::from_text(saved)); }),
              testing::HasSubstr("shard lengths differ"));
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

TEST(MixtureSamplerTest, MixesWithinEveryBlockAndOverManyDataSets) {
  std::vector<Mixture::Part> parts;
  for (std::uint64_t d = 0; d < 100; ++d) {
    parts.push_back(
        {.num_samples = 10 + d, .weight = static_cast<double>(d % 10), .kind = Chunked{5, 1}});
  }
  const MixtureSampler sampler(10 * 100 + 99 * 50,
                               {.seed = 2, .kind = Mixture{parts}, .epoch_size = 50'000});
  std::vector<double> counts(100);
  std::size_t same_as_before = 0;
  std::uint64_t before = 100;
  for (const std::uint64_t number : delivered(sampler)) {
    const std::uint64_t d = sampler.split(number).dataset;
    ++counts[d];
    if (d == before) ++same_as_before;
    before = d;
  }
  for (std::size_t d = 0; d < 100; ++d) {
    EXPECT_NEAR(counts[d], 50'000 * static_cast<double>(d % 10) / 450, 9) << d;
  }
  EXPECT_LT(same_as_before, 1200U);  // about 50,000 * sum of squared shares = 704
}

TEST(MixtureSamplerTest, RefusesWhatCannotBeMixed) {
  const auto text = [](const SampleSet& samples, const std::vector<Mixture::Part>& parts) {
    return test::error_text([&] { MixtureSampler(samples, {.kind = Mixture{parts}}); });
  };
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(text(0, {}), HasSubstr("no data set"));
  EXPECT_THAT(text(5, {{.num_samples = 5, .weight = -1}}),
              AllOf(HasSubstr("a weight is -1"), HasSubstr("data set 0")));
  EXPECT_THAT(text(5, {{.num_samples = 5, .weight = NAN}}), HasSubstr("a weight is nan"));
  EXPECT_THAT(text(5, {{.num_samples = 5, .weight = 0}}), HasSubstr("no weight is above 0"));
  EXPECT_THAT(text(5, {{.num_samples = 5}, {.num_samples = 0}}),
              AllOf(HasSubstr("is empty"), HasSubstr("data set 1")));
  EXPECT_THAT(text(5, {{.num_samples = 5, .kind = Sharded{}}}), HasSubstr("needs the shards"));
  EXPECT_THAT(text(SampleSet::of_shards(Samples{4, 6}),
                   {{.num_samples = 5}, {.num_samples = 5, .kind = Sharded{}}}),
              AllOf(HasSubstr("do not match"), HasSubstr("data set 1")));
  EXPECT_THAT(text(9, {{.num_samples = 5}, {.num_samples = 5}}),
              AllOf(HasSubstr("than the 9"), HasSubstr("data set 1")));
  EXPECT_THAT(text(11, {{.num_samples = 5}, {.num_samples = 5}}),
              AllOf(HasSubstr("10 samples"), HasSubstr("add up to 11")));
  EXPECT_THAT(text(5, {{.num_samples = 5, .kind = Chunked{.chunk_size = 0}}}),
              HasSubstr("chunk_size is 0"));
  EXPECT_THAT(text(5, {{.num_samples = 5, .kind = Chunked{.window = 0}}}),
              HasSubstr("window is 0"));
  const Order one{.kind = Mixture{{{.num_samples = 5}}}};
  MixtureSampler sampler(5, one);
  EXPECT_THAT(test::error_text([&] { sampler.set_epoch(kMaxSamples); }),
              HasSubstr("at most 2^62 samples"));
}

}  // namespace
}  // namespace shardwise
