#include "shardwise/order/sampler.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <stdexcept>

#include "order/order_test_support.h"
#include "order/permutation.h"
#include "shardwise/order/explain.h"

namespace shardwise {
namespace {

using test::at_epoch;
using test::delivered;
using test::Samples;
using test::SequentialSampler;

static_assert(std::input_iterator<Sampler::Iterator>);
static_assert(std::sentinel_for<std::default_sentinel_t, Sampler::Iterator>);

TEST(SamplerTest, IsUsedAsTheReadmeSays) {
  const std::vector<int> data(1003);
  DistributedChunkedSampler order(data.size(), {.seed = 17, .chunk_size = 100},
                                  {.rank = 0, .world_size = 8, .batch_size = 32});
  order.set_epoch(3);
  std::size_t count = 0;
  for (const std::uint64_t i : order) {
    ASSERT_LT(i, data.size());
    ++count;
  }
  EXPECT_EQ(count, order.size());
  EXPECT_EQ(order.size(), 126U);
  EXPECT_EQ(order.position(), 126U);
  EXPECT_EQ(order.steps(), 4U);
  EXPECT_EQ(order.next(), std::nullopt);
}

TEST(SamplerTest, EachSampleComesExactlyOnceForAllSmallCases) {
  for (std::uint64_t n = 0; n <= 200; ++n) {
    for (std::uint64_t world = 1; world <= 9; ++world) {
      for (const std::uint64_t chunk_size : {1U, 2U, 3U, 7U, 64U}) {
        for (const Order::Tail tail :
             {Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad}) {
          const std::string trace = "n " + std::to_string(n) + " world " + std::to_string(world) +
                                    " chunk_size " + std::to_string(chunk_size) + " tail " +
                                    std::string(tail_name(tail));
          std::vector<std::uint64_t> times(n);
          std::uint64_t total = 0;
          std::uint64_t smallest = ~std::uint64_t{0};
          std::uint64_t largest = 0;
          for (std::uint64_t rank = 0; rank < world; ++rank) {
            ChunkedSampler sampler(
                n, {.seed = n, .chunk_size = chunk_size, .window = 1 + n % 3, .tail = tail},
                {.rank = rank, .world_size = world});
            const std::uint64_t size = sampler.size();
            const Samples part = test::drain(sampler);
            ASSERT_EQ(part.size(), size) << trace;
            for (const std::uint64_t sample : part) {
              ASSERT_LT(sample, n) << trace;
              ++times[sample];
            }
            total += size;
            smallest = std::min(smallest, size);
            largest = std::max(largest, size);
          }
          const auto [fewest, most] = std::minmax_element(times.begin(), times.end());
          switch (tail) {
            case Order::Tail::kExact:
              ASSERT_EQ(total, n) << trace;
              ASSERT_LE(largest - smallest, 1U) << trace;
              ASSERT_TRUE(n == 0 || (*fewest == 1 && *most == 1)) << trace;
              break;
            case Order::Tail::kDrop:
              ASSERT_EQ(total, n / world * world) << trace;
              ASSERT_EQ(largest, smallest) << trace;
              ASSERT_TRUE(n == 0 || *most <= 1) << trace;
              break;
            case Order::Tail::kPad:
              ASSERT_EQ(total, (n + world - 1) / world * world) << trace;
              ASSERT_EQ(largest, smallest) << trace;
              ASSERT_TRUE(n == 0 || *fewest >= 1) << trace;
              ASSERT_TRUE(n < world || *most <= 2) << trace;
              break;
          }
        }
      }
    }
  }
}

TEST(SamplerTest, ATokenOfAFinishedEpochStandsAtTheBeginningOfTheNext) {
  for (const Order::Tail tail : {Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad}) {
    for (const std::uint64_t n : {0U, 1U, 3U, 4U, 10U, 12U}) {
      const ChunkedSampler sampler = at_epoch(
          ChunkedSampler(n, {.seed = 3, .chunk_size = 2, .tail = tail}, {.world_size = 4}), 6);
      for (std::uint64_t rank = 0; rank < 4; ++rank) {
        const auto mine = sampler.for_rank(rank);
        static_cast<void>(test::drain(*mine));
        const ResumeToken token = mine->token();
        EXPECT_EQ(token.epoch, 7U) << tail_name(tail) << n;
        EXPECT_EQ(token.position, 0U) << tail_name(tail) << n;
        EXPECT_EQ(token, mine->token_after(mine->steps())) << tail_name(tail) << n;
        EXPECT_EQ(token, mine->token_after(~std::uint64_t{0})) << tail_name(tail) << n;
        mine->resume(token);
        EXPECT_EQ(mine->epoch(), 7U);
        EXPECT_EQ(delivered(*mine), delivered(*at_epoch(sampler, 7).for_rank(rank)));
      }
      if (sampler.steps() > 0) {
        EXPECT_EQ(sampler.token_after(sampler.steps() - 1).epoch, 6U) << tail_name(tail) << n;
      }
    }
  }
}

TEST(SamplerTest, CountsTheDeliveriesBeforeAPosition) {
  for (const Order::Tail tail : {Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad}) {
    ChunkedSampler::Options options{.seed = 4, .chunk_size = 5, .tail = tail};
    options.skip.add_positions(0, 10, 14);
    options.skip.add_sample(30);
    const ChunkedSampler sampler(42, options, {.world_size = 3});
    Samples times(43);
    for (std::uint64_t rank = 0; rank < 3; ++rank) {
      const auto mine = sampler.for_rank(rank);
      for (std::uint64_t i = 0; i < mine->size(); ++i) {
        // Positions from 37 on are repeated as padding.
        if (i * 3 + rank < 37) ++times[mine->position_in_epoch(i) + 1];
      }
    }
    std::partial_sum(times.begin(), times.end(), times.begin());
    EXPECT_EQ(times[42], tail == Order::Tail::kDrop ? 36U : 37U);
    ChunkedSampler resumed(42, options, {.world_size = 3});
    resumed.resume(sampler.token_after(5));
    for (std::uint64_t position = 0; position <= 42; ++position) {
      EXPECT_EQ(sampler.deliveries_before(position), times[position])
          << tail_name(tail) << " " << position;
      EXPECT_EQ(resumed.deliveries_before(position), times[position])
          << tail_name(tail) << " " << position;
    }
    EXPECT_EQ(sampler.deliveries_before(~std::uint64_t{0}), times[42]);
  }
}

TEST(SamplerTest, EpochsAndSeedsGiveOtherOrdersAndTheSameAgain) {
  ChunkedSampler sampler(1000, {.seed = 1, .chunk_size = 50});
  const Samples first = delivered(sampler);
  sampler.set_epoch(1);
  EXPECT_NE(delivered(sampler), first);
  sampler.set_epoch(0);
  EXPECT_EQ(delivered(sampler), first);
  EXPECT_NE(delivered(ChunkedSampler(1000, {.seed = 2, .chunk_size = 50})), first);
  EXPECT_NE(delivered(ChunkedSampler(1000, {.seed = 1, .chunk_size = 50, .window = 1})), first)
      << "chunks are mixed by default";
  EXPECT_EQ(delivered(ChunkedSampler(1000, {.seed = 1, .chunk_size = 50, .window = 64})), first);
  EXPECT_NE(delivered(*make_sampler(1000, {.seed = 1, .kind = Chunked{50, 64, true}})), first);
  const SampleSet shards = SampleSet::of_shards(std::vector<std::uint64_t>(30, 10));
  EXPECT_EQ(delivered(*make_sampler(shards, {.seed = 1, .kind = Sharded{}})),
            delivered(*make_sampler(shards, {.seed = 1, .kind = Sharded{.window = 8}})));
}

TEST(SamplerTest, SamplersWithFlatOptionsAreTheOrdersOfThatName) {
  SkipList skip;
  skip.add_sample(7);
  const RankOptions ranks{.rank = 1, .world_size = 2};
  const ChunkedSampler chunked(101,
                               {.seed = 5,
                                .chunk_size = 9,
                                .window = 3,
                                .streams = 4,
                                .tail = Order::Tail::kDrop,
                                .skip = skip},
                               ranks);
  const Order order{
      .seed = 5, .kind = Chunked{9, 3}, .streams = 4, .tail = Order::Tail::kDrop, .skip = skip};
  EXPECT_EQ(delivered(chunked), delivered(*make_sampler(101, order, ranks)));
  EXPECT_EQ(chunked.spec(), make_sampler(101, order, ranks)->spec());
  EXPECT_EQ(chunked.skip(), skip);
}

// docs/formats/order.md, Ranks and steps.
TEST(SamplerTest, GoldenRanksNeverChange) {
  const auto rank = [](std::uint64_t r, std::uint64_t streams) {
    return delivered(
        at_epoch(ChunkedSampler(23, {.seed = 42, .chunk_size = 5, .window = 2, .streams = streams},
                                {.rank = r, .world_size = 3}),
                 5));
  };
  EXPECT_EQ(rank(0, 1), (Samples{17, 16, 18, 0, 14, 8, 10, 22}));
  EXPECT_EQ(rank(1, 1), (Samples{3, 15, 4, 12, 6, 13, 7, 21}));
  EXPECT_EQ(rank(2, 3), (Samples{13, 5, 10, 7, 20, 22, 21}));
  EXPECT_EQ(delivered(SequentialSampler(7, {.rank = 1, .world_size = 2})), (Samples{1, 3, 5}));
}

TEST(SamplerTest, LeavingALoopEarlyCountsWhatWasUsed) {
  SequentialSampler sampler(100);
  std::uint64_t last = 0;
  for (const std::uint64_t sample : sampler) {
    last = sample;
    if (sample == 41) break;
  }
  EXPECT_EQ(last, 41U);
  EXPECT_EQ(sampler.position(), 42U);
  EXPECT_EQ(sampler.next(), 42U);
  sampler.reset();
  EXPECT_EQ(sampler.next(), 0U);
}

TEST(SamplerTest, ALoopAtTheEndOfAnEpochIsRefusedAndSaysWhatGoesOn) {
  ChunkedSampler sampler(10, {.chunk_size = 3});
  sampler.set_epoch(4);
  EXPECT_EQ(test::drain(sampler).size(), 10U);
  EXPECT_THAT(test::error_text([&] { static_cast<void>(test::drain(sampler)); }),
              testing::AllOf(testing::HasSubstr("end of the epoch"),
                             testing::HasSubstr("call set_epoch(5)")));
  EXPECT_EQ(test::error_code([&] { sampler.begin(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(sampler.next(), std::nullopt) << "asking for one more is no mistake";
  sampler.set_epoch(5);
  EXPECT_EQ(test::drain(sampler).size(), 10U);
  sampler.reset();
  EXPECT_EQ(test::drain(sampler).size(), 10U);
  sampler.seek(8);
  EXPECT_EQ(test::drain(sampler).size(), 2U);

  // Only a batch that is not full reports that the end was reached.
  sampler.reset();
  Samples batch(10);
  EXPECT_EQ(sampler.next_batch(batch), 10U);
  EXPECT_TRUE(test::drain(sampler).empty());
  sampler.reset();
  batch.resize(11);
  EXPECT_EQ(sampler.next_batch(batch), 10U);
  EXPECT_EQ(test::error_code([&] { sampler.begin(); }), ErrorCode::kInvalidArgument);
  // An empty epoch can also be iterated over.
  ChunkedSampler empty(0);
  EXPECT_TRUE(test::drain(empty).empty());
}

TEST(SamplerTest, ABatchThatThrowsInTheMiddleLosesNothing) {
  bool fails = false;
  const SampleSet samples = SampleSet(100).with_bytes([&fails](std::uint64_t sample) {
    if (fails && sample % 4 == 1) throw std::runtime_error("no such size");
    return 1 + sample;
  });
  const auto sampler =
      make_sampler(samples, {.seed = 3, .kind = Chunked{.chunk_size = 10}, .balance_bytes = true},
                   {.world_size = 2, .batch_size = 5});
  const Samples whole = delivered(*sampler);
  for (const std::uint64_t before : {0U, 1U, 5U, 7U, 20U}) {
    for (const std::size_t size : {1U, 5U, 12U, 100U}) {
      sampler->reset();
      for (std::uint64_t i = 0; i < before; ++i) static_cast<void>(sampler->next());
      Samples batch(size);
      fails = true;
      std::size_t count = 0;
      try {  // samples that are already in the buffer may still be delivered
        count = sampler->next_batch(batch);
      } catch (const std::runtime_error&) {
        EXPECT_EQ(sampler->position(), before);
        EXPECT_THROW(
            {
              for (int i = 0; i < 100; ++i) static_cast<void>(sampler->next());
            },
            std::runtime_error);
        count = sampler->position() - before;
      }
      fails = false;
      const Samples rest = test::drain(*sampler);
      EXPECT_EQ(rest,
                Samples(whole.begin() + static_cast<std::ptrdiff_t>(before + count), whole.end()));
    }
  }
}

TEST(SamplerTest, WhatThrowsLeavesTheSamplerWhereItWas) {
  SkipList skip;
  skip.add_sample(1);
  Mixture::Part part{.num_samples = 100};
  const auto mixture = make_sampler(100, {.seed = 1, .kind = Mixture{{part}}});
  mixture->seek(7);
  const ResumeToken token = mixture->token();
  EXPECT_EQ(test::error_code([&] { mixture->set_epoch(kMaxSamples); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(mixture->epoch(), 0U);
  EXPECT_EQ(mixture->position(), 7U);
  EXPECT_EQ(mixture->token(), token);
  ResumeToken beyond = token;
  beyond.position = 101;
  EXPECT_THAT(test::error_text([&] { mixture->resume(beyond); }),
              testing::HasSubstr("no position 101"));
  beyond = token;
  beyond.skip.add_sample(100);
  EXPECT_EQ(test::error_code([&] { mixture->resume(beyond); }), ErrorCode::kOutOfRange);
  EXPECT_EQ(mixture->token(), token);
}

TEST(SamplerTest, WorksAtTenToTheTwelfth) {
  for (const std::uint64_t streams : {1U, 8U, 64U}) {
    ChunkedSampler sampler(std::uint64_t{1'000'000'000'000},
                           {.seed = 1, .window = 8, .streams = streams},
                           {.rank = 3, .world_size = 8});
    EXPECT_EQ(sampler.size(), 125'000'000'000U);
    std::set<std::uint64_t> seen;
    for (const std::uint64_t start :
         {std::uint64_t{0}, std::uint64_t{62'500'000'001}, sampler.size() - 100}) {
      sampler.seek(start);
      for (int i = 0; i < 100; ++i) {
        const std::uint64_t sample = *sampler.next();
        EXPECT_TRUE(seen.insert(sample).second);
        const std::vector<Sampler::SampleTime> found = when_sample(sampler, sample);
        ASSERT_EQ(found.size(), 1U);
        EXPECT_EQ(found[0].rank, 3U);
        EXPECT_EQ(found[0].step, sampler.position() - 1);
        EXPECT_EQ(found[0].position, 8 * found[0].step + 3);
      }
    }
    EXPECT_EQ(sampler.next(), std::nullopt);
  }
}

TEST(SamplerTest, ShardedReadsAFewShardsAtATime) {
  const std::vector<std::uint64_t> lengths = test::some_lengths(5000, 200, 3);
  const ShardOffsets offsets = test::offsets_of(lengths);
  const auto sampler =
      make_sampler(SampleSet(5000).with_shards(offsets), {.seed = 1, .kind = Sharded{.window = 3}});
  std::set<std::size_t> window;
  std::size_t windows = 0;
  for (const std::uint64_t sample : delivered(*sampler)) {
    const auto shard = static_cast<std::size_t>(
        std::upper_bound(offsets->begin(), offsets->end(), sample) - offsets->begin());
    window.insert(shard);
    if (window.size() > 3) {
      window = {shard};
      ++windows;
    }
  }
  EXPECT_LE(windows, lengths.size() / 3 + 1);
}

TEST(SamplerTest, OptionsThatMeanNothingAreRefused) {
  const auto text = [](const SampleSet& samples, const Order& order,
                       const RankOptions& ranks = {}) {
    return test::error_text([&] { make_sampler(samples, order, ranks); });
  };
  EXPECT_THAT(text(10, {.kind = Chunked{.chunk_size = 0}}), testing::HasSubstr("chunk_size is 0"));
  EXPECT_THAT(text(10, {.kind = Chunked{.window = 0}}), testing::HasSubstr("window is 0"));
  EXPECT_THAT(
      text(SampleSet::of_shards(std::vector<std::uint64_t>{10}), {.kind = Sharded{.window = 0}}),
      testing::HasSubstr("window is 0"));
  EXPECT_THAT(text(10, {.streams = 3}, {.world_size = 4}),
              testing::HasSubstr("choose streams 1, 2, 4"));
  EXPECT_THAT(text(10, {.streams = 0}), testing::HasSubstr("streams is 0"));
  EXPECT_THAT(text(10, {}, {.world_size = 0}), testing::HasSubstr("world_size is 0"));
  EXPECT_THAT(text(10, {}, {.rank = 4, .world_size = 4}), testing::HasSubstr("[0, 4)"));
  EXPECT_THAT(text(10, {}, {.batch_size = 0}), testing::HasSubstr("batch_size is 0"));
  EXPECT_THAT(
      text(10, {}, {.world_size = 4, .replicas = 3}),
      testing::AllOf(testing::HasSubstr("replicas is 3"), testing::HasSubstr("world_size 4")));
  EXPECT_THAT(text(10, {}, {.world_size = 4, .replicas = 0}), testing::HasSubstr("replicas is 0"));
  EXPECT_THAT(text(kMaxSamples + 1, {}), testing::HasSubstr("at most 2^62"));
  EXPECT_THAT(text(10, {.epoch_size = kMaxSamples + 1}), testing::HasSubstr("at most 2^62"));
  EXPECT_THAT(test::error_text([] { ChunkedSampler(-5); }), testing::HasSubstr("samples is -5"));
  Order order;
  order.skip.add_sample(10);
  EXPECT_THAT(text(10, order), testing::HasSubstr("no sample 10"));
}

TEST(SamplerTest, PositionsOutOfRangeAreRefused) {
  ChunkedSampler sampler(10, {}, {.rank = 1, .world_size = 3});
  EXPECT_THAT(test::error_text([&] { sampler.seek(4); }), testing::HasSubstr("[0, 3]"));
  EXPECT_THAT(test::error_text([&] { sampler.at(3); }),
              testing::HasSubstr("no sample 3 on rank 1"));
  EXPECT_EQ(test::error_code([&] { sampler.position_in_epoch(3); }), ErrorCode::kOutOfRange);
  EXPECT_THAT(test::error_text([&] { when_sample(sampler, 10); }), testing::HasSubstr("[0, 10)"));
  EXPECT_EQ(test::error_code([&] { sampler.for_rank(3); }), ErrorCode::kInvalidArgument);
  EXPECT_NO_THROW(sampler.seek(3));
  EXPECT_EQ(sampler.next(), std::nullopt);
}

TEST(SamplerTest, AGlobalBatchSizeNeedNotDivideAmongTheRanks) {
  for (std::uint64_t n = 0; n <= 40; ++n) {
    for (std::uint64_t world = 1; world <= 5; ++world) {
      for (std::uint64_t global = 1; global <= 12; ++global) {
        for (const Order::Tail tail : {Order::Tail::kExact, Order::Tail::kDrop}) {
          const Order order{.seed = n, .kind = Chunked{.chunk_size = 4}, .tail = tail};
          test::Samples in_steps;
          std::uint64_t steps = 0;
          for (std::uint64_t rank = 0; rank < world; ++rank) {
            const auto sampler = make_sampler(
                n, order, {.rank = rank, .world_size = world, .global_batch_size = global});
            steps = sampler->steps();
            for (std::uint64_t step = 0; step < steps; ++step) {
              const std::uint64_t first = sampler->first_of_step(step);
              const std::uint64_t last = sampler->first_of_step(step + 1);
              ASSERT_LE(last - first, (global + world - 1) / world);
              for (std::uint64_t i = first; i < last; ++i) {
                ASSERT_EQ(sampler->step_of(i), step);
                in_steps.push_back(sampler->at(i));
              }
            }
            ASSERT_EQ(sampler->first_of_step(steps), sampler->size());
          }
          const std::uint64_t kept = tail == Order::Tail::kDrop ? n - n % world : n;
          ASSERT_EQ(steps, (kept + global - 1) / global);
          ASSERT_EQ(in_steps.size(), kept);
          std::sort(in_steps.begin(), in_steps.end());
          ASSERT_EQ(std::unique(in_steps.begin(), in_steps.end()), in_steps.end());
        }
      }
    }
  }
  EXPECT_THAT(
      test::error_text([] {
        make_sampler(25, {.tail = Order::Tail::kPad}, {.world_size = 3, .global_batch_size = 2});
      }),
      testing::AllOf(testing::HasSubstr("tail pad"), testing::HasSubstr("global_batch_size of 2"),
                     testing::HasSubstr("3 ranks")));
}

}  // namespace
}  // namespace shardwise
