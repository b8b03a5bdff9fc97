#include "shardwise/order/mixture_sampler.h"

#include <cmath>
#include <set>

#include "order/order_test_support.h"

namespace shardwise {
namespace {

using test::delivered;
using test::Samples;

std::vector<MixturePart> three_parts() {
  return {{.num_samples = 500, .weight = 5, .chunk_size = 50, .window = 2},
          {.num_samples = 40, .weight = 1, .sampler = SamplerKind::kSequential},
          {.num_samples = 90,
           .weight = 2.5,
           .sampler = SamplerKind::kSharded,
           .offsets = test::offsets_of({30, 0, 25, 35})}};
}

/// All slots of the first epochs.
std::vector<MixtureSample> slots_of_epochs(MixtureSampler sampler, std::uint64_t num_epochs) {
  std::vector<MixtureSample> slots;
  for (std::uint64_t epoch = 0; epoch < num_epochs; ++epoch) {
    sampler.set_epoch(epoch);
    while (const auto sample = sampler.next_split()) slots.push_back(*sample);
  }
  return slots;
}

TEST(MixtureSamplerTest, EachDataSetHasExactEpochsOfItsOwn) {
  const std::vector<MixturePart> parts = three_parts();
  const std::vector<MixtureSample> slots =
      slots_of_epochs(MixtureSampler(parts, {.seed = 3, .epoch_size = 777}), 9);
  ASSERT_EQ(slots.size(), 9U * 777);
  for (std::uint64_t d = 0; d < 3; ++d) {
    Samples draws;
    for (const MixtureSample& slot : slots) {
      if (slot.dataset == d) draws.push_back(slot.sample);
    }
    const std::uint64_t n = parts[d].num_samples.value();
    ASSERT_GT(draws.size(), 3 * n);
    Samples before;
    for (std::size_t begin = 0; begin + n <= draws.size(); begin += n) {
      const Samples epoch(draws.begin() + static_cast<std::ptrdiff_t>(begin),
                          draws.begin() + static_cast<std::ptrdiff_t>(begin + n));
      ASSERT_TRUE(test::is_each_once(epoch, n)) << d;
      ASSERT_EQ(epoch == before, d == 1 && begin > 0)
          << "only the sequential one repeats its order";
      before = epoch;
    }
  }
}

TEST(MixtureSamplerTest, SharesFollowTheWeightsClosely) {
  const MixtureSampler sampler(three_parts(), {.seed = 3, .epoch_size = 100'000});
  const std::vector<double> weights{5 / 8.5, 1 / 8.5, 2.5 / 8.5};
  for (std::uint64_t slot = 0; slot <= 100'000; slot += 256) {
    std::uint64_t total = 0;
    for (std::size_t d = 0; d < 3; ++d) {
      const std::uint64_t draws = sampler.draws_before(d, slot);
      EXPECT_NEAR(static_cast<double>(draws), weights[d] * static_cast<double>(slot), 2.01) << slot;
      total += draws;
    }
    ASSERT_EQ(total, slot);
  }
}

TEST(MixtureSamplerTest, RanksShareTheSlotsWhateverTheirNumber) {
  const Samples one =
      delivered(MixtureSampler(three_parts(), {.seed = 1, .epoch = 2, .epoch_size = 1001}));
  for (const std::uint64_t world : {2U, 7U, 8U, 20U}) {
    const MixtureSampler sampler(three_parts(),
                                 {.world_size = world, .seed = 1, .epoch = 2, .epoch_size = 1001});
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      const auto mine = sampler.for_rank(rank);
      const Samples part = delivered(*mine);
      ASSERT_EQ(part.size(), mine->size());
      for (std::size_t i = 0; i < part.size(); ++i) {
        ASSERT_EQ(part[i], one[i * world + rank]) << world;
        ASSERT_EQ(mine->at(i), part[i]);
      }
    }
  }
}

TEST(MixtureSamplerTest, SaysWhereEverySampleComes) {
  const MixtureSampler sampler(
      three_parts(), {.rank = 1, .world_size = 3, .seed = 1, .epoch = 2, .epoch_size = 500});
  std::vector<std::vector<Delivery>> found(630);
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    const Samples part = delivered(*sampler.for_rank(rank));
    for (std::uint64_t i = 0; i < part.size(); ++i)
      found[part[i]].push_back({rank, i, i * 3 + rank});
  }
  for (std::uint64_t number = 0; number < 630; ++number) {
    auto told = sampler.deliveries(number);
    std::sort(told.begin(), told.end());
    ASSERT_EQ(told, found[number]) << number;
  }
}

TEST(MixtureSamplerTest, ResumesOnAnotherNumberOfRanks) {
  const OrderOptions options{.world_size = 4, .seed = 1, .epoch = 1, .epoch_size = 400};
  const Samples whole =
      delivered(MixtureSampler(three_parts(), {.seed = 1, .epoch = 1, .epoch_size = 400}));
  MixtureSampler before(three_parts(), options);
  before.seek(33);
  const std::string saved = before.token({1, 1}).to_text();
  MixtureSampler after(three_parts(), {.seed = 1, .epoch_size = 400});
  after.resume(ResumeToken::from_text(saved), {1, 1});
  EXPECT_EQ(test::drain(after), Samples(whole.begin() + 132, whole.end()));
  std::vector<MixturePart> changed = three_parts();
  changed[0].weight = 6;
  MixtureSampler other(changed, {.seed = 1, .epoch_size = 400});
  EXPECT_THAT(test::error_text([&] {
                other.resume(ResumeToken::from_text(saved), {1, 1});
              }),
              testing::HasSubstr("data sets or weights differ"));
}

TEST(MixtureSamplerTest, GoldenMixtureNeverChanges) {
  MixtureSampler sampler(three_parts(), {.seed = 17, .epoch_size = 16});
  EXPECT_EQ(delivered(sampler),
            (Samples{331, 625, 500, 603, 343, 617, 311, 79, 91, 316, 325, 621, 610, 59, 601, 88}));
  sampler.set_epoch(1'000'000);
  EXPECT_EQ(sampler[15], 497U);
}

TEST(MixtureSamplerTest, MixesWithinEveryBlockAndOverManyDataSets) {
  std::vector<MixturePart> parts;
  for (std::uint64_t d = 0; d < 100; ++d) {
    parts.push_back(
        {.num_samples = 10 + d, .weight = static_cast<double>(d % 10), .chunk_size = 5});
  }
  const MixtureSampler sampler(parts, {.seed = 2, .epoch_size = 50'000});
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
  const auto text = [](std::vector<MixturePart> parts, const OrderOptions& options = {}) {
    return test::error_text([&] { MixtureSampler(parts, options); });
  };
  EXPECT_THAT(text({}), testing::HasSubstr("a mixture of nothing"));
  EXPECT_THAT(text({{.num_samples = 5, .weight = -1}}), testing::HasSubstr("at least 0"));
  EXPECT_THAT(text({{.num_samples = 5, .weight = NAN}}), testing::HasSubstr("weight of nan"));
  EXPECT_THAT(text({{.num_samples = 5, .weight = 0}}), testing::HasSubstr("no weight"));
  EXPECT_THAT(text({{.num_samples = 5}, {.num_samples = 0}}), testing::HasSubstr("data set 1"));
  EXPECT_THAT(text({{.num_samples = 5, .sampler = SamplerKind::kWids}}),
              testing::HasSubstr("mixture of wids"));
  EXPECT_THAT(text({{.num_samples = 5, .sampler = SamplerKind::kSharded}}),
              testing::HasSubstr("shard offsets"));
  EXPECT_THAT(text({{.num_samples = 5}}, {.tail = Tail::kPad}), testing::HasSubstr("tail"));
  EXPECT_THAT(text({{.num_samples = 5}}, {.world_size = 2, .streams = 2}),
              testing::HasSubstr("streams"));
  EXPECT_THAT(text({{.num_samples = 5}}, {.epoch = kMaxSamples}), testing::HasSubstr("2^62 slots"));
  EXPECT_THAT(text({{.num_samples = 5}}, {.chunk_size = 3}), testing::HasSubstr("chunk_size"));
  const std::vector<MixturePart> one{{.num_samples = 5}};
  const MixtureSampler sampler(one);
  EXPECT_EQ(test::error_code([&] { sampler.split(5); }), ErrorCode::kOutOfRange);
  EXPECT_THAT(test::error_text([&] { static_cast<void>(sampler.expectation({})); }),
              testing::HasSubstr("for each data set"));
}

}  // namespace
}  // namespace shardwise
