#include "shardwise/order/make_sampler.h"

#include <cmath>

#include "order/order_test_support.h"
#include "shardwise/order/explain.h"
#include "shardwise/order/resampled_sampler.h"
#include "shardwise/order/wids_sampler.h"

namespace shardwise {
namespace {

using test::delivered;
using test::Samples;

std::uint64_t bytes_of(std::uint64_t sample) {
  // From 1 kB to about 1 MB, most of them small.
  const std::uint64_t x = hash64({reinterpret_cast<const char*>(&sample), sizeof sample}) % 1000;
  return 1000 + x * x;
}

TEST(MakeSamplerTest, MakesEachKind) {
  const ShardOffsets offsets = test::offsets_of({30, 40, 30});
  OrderOptions options{.seed = 5, .chunk_size = 7};
  EXPECT_EQ(delivered(*make_sampler(100, options)), delivered(ChunkedSampler(100, options)));
  options.sampler = SamplerKind::kWids;
  EXPECT_EQ(delivered(*make_sampler(100, options, offsets)), delivered(WidsSampler(100, options)));
  options = {.sampler = SamplerKind::kSharded, .seed = 5, .window = 2};
  EXPECT_EQ(delivered(*make_sampler(100, options, offsets)),
            delivered(ShardedSampler(offsets, options)));
  options = {.sampler = SamplerKind::kSequential};
  EXPECT_EQ(delivered(*make_sampler(100, options)), test::first_numbers(100));
  options = {.sampler = SamplerKind::kResampled, .seed = 5};
  EXPECT_EQ(delivered(*make_sampler(100, options)), delivered(ResampledSampler(100, options)));
  options.resample = ResampleUnit::kShard;
  EXPECT_EQ(delivered(*make_sampler(100, options, offsets)),
            delivered(ResampledSampler(offsets, options)));
}

TEST(MakeSamplerTest, SaysWhatIsMissingOrWrong) {
  const auto text = [](std::uint64_t n, const OrderOptions& options,
                       const ShardOffsets& offsets = {}) {
    return test::error_text([&] { make_sampler(n, options, offsets); });
  };
  EXPECT_THAT(text(10, {.sampler = SamplerKind::kSharded}),
              testing::HasSubstr("not a list of shard offsets"));
  EXPECT_THAT(text(10, {.sampler = SamplerKind::kSharded}, test::offsets_of({4, 5})),
              testing::HasSubstr("the shards hold 9 samples, not 10"));
  EXPECT_THAT(text(10, {.sampler = SamplerKind::kMixture}), testing::HasSubstr("MixtureSampler"));
  EXPECT_THAT(text(10, {.balance_bytes = true}),
              testing::HasSubstr("a function that tells the bytes"));
  EXPECT_THAT(text(10, {.sampler = SamplerKind::kWids, .balance_bytes = true}),
              testing::HasSubstr("cannot balance bytes"));
  EXPECT_THAT(test::error_text([] { ChunkedSampler(10, {.balance_bytes = true}); }),
              testing::HasSubstr("use BalancedSampler"));
}

TEST(MakeSamplerTest, SamplersHaveNames) {
  for (const SamplerKind kind :
       {SamplerKind::kChunked, SamplerKind::kSharded, SamplerKind::kSequential,
        SamplerKind::kResampled, SamplerKind::kWids}) {
    EXPECT_EQ(parse_sampler(sampler_name(kind)), kind);
  }
  EXPECT_THAT(test::error_text([] { parse_sampler("random"); }),
              testing::HasSubstr("use chunked, sharded, sequential, resampled or wids"));
}

TEST(BalancedSamplerTest, GivesEqualCountsAndNearlyEqualBytesAndStaysExact) {
  for (const std::uint64_t world : {2U, 4U, 8U, 7U}) {
    const OrderOptions options{
        .world_size = world, .seed = 3, .chunk_size = 100, .balance_bytes = true};
    const auto sampler = make_sampler(10'080, options, nullptr, bytes_of);
    OrderOptions plain_options = options;
    plain_options.balance_bytes = false;
    const ChunkedSampler plain(10'080, plain_options);
    Samples all;
    std::vector<double> sizes;
    std::vector<double> plain_sizes;
    const auto bytes = [](const Samples& samples) {
      double sum = 0;
      for (const std::uint64_t sample : samples) sum += static_cast<double>(bytes_of(sample));
      return sum;
    };
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      const auto mine = sampler->for_rank(rank);
      const Samples part = delivered(*mine);
      const Samples before = delivered(*plain.for_rank(rank));
      ASSERT_EQ(part.size(), mine->size());
      ASSERT_EQ(part.size(), before.size());
      all.insert(all.end(), part.begin(), part.end());
      // Less one sample, so that all have the same number.
      sizes.push_back(
          bytes({part.begin(), part.begin() + static_cast<std::ptrdiff_t>(10'080 / world)}));
      plain_sizes.push_back(
          bytes({before.begin(), before.begin() + static_cast<std::ptrdiff_t>(10'080 / world)}));
    }
    ASSERT_TRUE(test::is_each_once(all, 10'080)) << world;
    const auto spread = [](const std::vector<double>& values) {
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      return (*high - *low) / *high;
    };
    EXPECT_LT(spread(sizes), 0.003) << world;
    EXPECT_LT(spread(sizes), spread(plain_sizes)) << world;
  }
}

TEST(BalancedSamplerTest, EachRowKeepsItsSamples) {
  OrderOptions options{.world_size = 4, .seed = 3, .chunk_size = 10, .balance_bytes = true};
  const auto balanced = make_sampler(203, options, nullptr, bytes_of);
  options.balance_bytes = false;
  const auto plain = make_sampler(203, options);
  for (std::uint64_t step = 0; step < plain->steps(1); ++step) {
    const auto row = [step](const Sampler& sampler) {
      std::set<std::uint64_t> samples;
      for (const RankStep& rank : explain_step(sampler, step, 1)) {
        samples.insert(rank.samples.begin(), rank.samples.end());
      }
      return samples;
    };
    EXPECT_EQ(row(*balanced), row(*plain));
  }
}

TEST(BalancedSamplerTest, ResumesAnywhereOnAnyNumberOfRanks) {
  for (const Tail tail : {Tail::kExact, Tail::kPad, Tail::kDrop}) {
    for (std::uint64_t slots = 0; slots <= 90; slots += 3) {
      for (const std::uint64_t world : {1U, 3U, 4U, 8U}) {
        const OrderOptions options{
            .world_size = world, .seed = 3, .chunk_size = 10, .tail = tail, .balance_bytes = true};
        const auto sampler = make_sampler(90, options, nullptr, bytes_of);
        const auto plain =
            make_sampler(90, {.world_size = world, .seed = 3, .chunk_size = 10, .tail = tail});
        Samples ours;
        Samples expected;
        for (std::uint64_t rank = 0; rank < world; ++rank) {
          const auto mine = sampler->for_rank(rank);
          const auto theirs = plain->for_rank(rank);
          mine->resume_at(slots);
          theirs->resume_at(slots);
          const Samples part = test::drain(*mine);
          const Samples other = test::drain(*theirs);
          ASSERT_EQ(part.size(), other.size());
          ours.insert(ours.end(), part.begin(), part.end());
          expected.insert(expected.end(), other.begin(), other.end());
        }
        std::sort(ours.begin(), ours.end());
        std::sort(expected.begin(), expected.end());
        ASSERT_EQ(ours, expected) << "slots " << slots << " world " << world;
      }
    }
  }
}

TEST(ExplainTest, SaysWhatEveryRankHadAndWhenEverySampleCame) {
  for (const bool balance : {false, true}) {
    for (const std::uint64_t first_slot : {0U, 13U}) {
      const OrderOptions options{.rank = 2,
                                 .world_size = 3,
                                 .seed = 3,
                                 .chunk_size = 10,
                                 .streams = 3,
                                 .balance_bytes = balance};
      const auto sampler = make_sampler(100, options, nullptr, bytes_of);
      const std::uint64_t batch_size = 4;
      Samples seen;
      for (std::uint64_t step = 0; step < sampler->steps(batch_size, first_slot); ++step) {
        const std::vector<RankStep> ranks = explain_step(*sampler, step, batch_size, first_slot);
        ASSERT_EQ(ranks.size(), 3U);
        for (const RankStep& rank : ranks) {
          const auto mine = sampler->for_rank(rank.rank);
          mine->resume_at(first_slot);
          Samples batch(batch_size);
          for (std::uint64_t t = 0; t <= step; ++t) {
            batch.resize(batch_size);
            batch.resize(mine->next_batch(batch));
          }
          ASSERT_EQ(rank.samples, batch);
          for (std::uint64_t place = 0; place < batch.size(); ++place) {
            const auto times = when_sample(*sampler, batch[place], batch_size, first_slot);
            ASSERT_EQ(times.size(), 1U);
            EXPECT_EQ(times[0].rank, rank.rank);
            EXPECT_EQ(times[0].step, step);
            EXPECT_EQ(times[0].place, place);
            seen.push_back(batch[place]);
          }
        }
      }
      EXPECT_EQ(seen.size(), 100 - first_slot);
      std::size_t never = 0;
      for (std::uint64_t s = 0; s < 100; ++s)
        never += when_sample(*sampler, s, 4, first_slot).empty();
      EXPECT_EQ(never, first_slot);
    }
  }
}

TEST(ExplainTest, AnswersForWidsTooAndRefusesWhatCannotBe) {
  const WidsSampler wids(20, {.world_size = 3, .chunk_size = 4});
  const std::vector<RankStep> ranks = explain_step(wids, 1, 4);
  EXPECT_EQ(ranks[2].samples.size(), 2U);
  EXPECT_EQ(when_sample(wids, ranks[2].samples[1], 4), (std::vector<SampleTime>{{2, 1, 1, 17}}));
  const ChunkedSampler chunked(20, {.world_size = 3});
  EXPECT_THAT(test::error_text([&] { explain_step(chunked, 2, 4); }),
              testing::HasSubstr("it has 2 steps, numbered from 0"));
  EXPECT_THAT(test::error_text([&] { explain_step(chunked, ~std::uint64_t{0}, 4); }),
              testing::HasSubstr("no step"));
  EXPECT_EQ(test::error_code([&] { explain_step(chunked, 0, 0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { when_sample(chunked, 0, 0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { when_sample(ResampledSampler(20), 0, 1); }),
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace shardwise
