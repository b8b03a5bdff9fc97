#include "shardwise/order/sampler.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <stdexcept>

#include "order/order_test_support.h"
#include "order/permutation.h"
#include "shardwise/order/explain.h"
#include "support/says.h"

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

TEST(SamplerTest, ALoopAtTheEndOfAnEpochIsRefusedAndSaysWhatGoesOn) {
  ChunkedSampler sampler(10, {.chunk_size = 3});
  sampler.set_epoch(4);
  EXPECT_EQ(test::drain(sampler).size(), 10U);
  EXPECT_ERROR(test::Says("end of the epoch", "call set_epoch(5)"), test::drain(sampler));
  EXPECT_CODE(kInvalidArgument, sampler.begin());
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
  EXPECT_CODE(kInvalidArgument, sampler.begin());
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
  EXPECT_CODE(kInvalidArgument, mixture->set_epoch(kMaxSamples));
  EXPECT_EQ(mixture->epoch(), 0U);
  EXPECT_EQ(mixture->position(), 7U);
  EXPECT_EQ(mixture->token(), token);
  ResumeToken beyond = token;
  beyond.position = 101;
  EXPECT_ERROR(test::Says("no position 101"), mixture->resume(beyond));
  beyond = token;
  beyond.skip.add_sample(100);
  EXPECT_CODE(kOutOfRange, mixture->resume(beyond));
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

TEST(SamplerTest, AStepHasTheSamplesFromItsFirstOnToTheNextStepsFirst) {
  for (std::uint64_t global = 1; global <= 12; ++global) {
    for (std::uint64_t rank = 0; rank < 5; ++rank) {
      const auto sampler =
          make_sampler(40, {}, {.rank = rank, .world_size = 5, .global_batch_size = global});
      for (std::uint64_t i = 0; i < sampler->size(); ++i) {
        const std::uint64_t step = sampler->step_of(i);
        EXPECT_LE(sampler->first_of_step(step), i) << global << " " << rank;
        EXPECT_GT(sampler->first_of_step(step + 1), i) << global << " " << rank;
      }
    }
  }
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
  EXPECT_THAT(text(10, {}, {.world_size = 4, .replicas = 3}),
              test::Says("replicas is 3", "world_size 4"));
  EXPECT_THAT(text(10, {}, {.world_size = 4, .replicas = 0}), testing::HasSubstr("replicas is 0"));
  EXPECT_THAT(text(kMaxSamples + 1, {}), testing::HasSubstr("at most 2^62"));
  EXPECT_THAT(text(10, {.epoch_size = kMaxSamples + 1}), testing::HasSubstr("at most 2^62"));
  EXPECT_ERROR(test::Says("samples is -5"), ChunkedSampler(-5));
  EXPECT_THAT(text(25, {.tail = Order::Tail::kPad}, {.world_size = 3, .global_batch_size = 2}),
              test::Says("tail pad", "global_batch_size of 2", "3 ranks"));
  Order order;
  order.skip.add_sample(10);
  EXPECT_THAT(text(10, order), test::Says("sample 10, which does not exist", "[0, 10)"));
}

TEST(SamplerTest, PositionsOutOfRangeAreRefused) {
  ChunkedSampler sampler(10, {}, {.rank = 1, .world_size = 3});
  EXPECT_ERROR(test::Says("[0, 3]"), sampler.seek(4));
  EXPECT_ERROR(test::Says("no sample 3 on rank 1"), sampler.at(3));
  EXPECT_CODE(kOutOfRange, sampler.position_in_epoch(3));
  EXPECT_ERROR(test::Says("[0, 10)"), when_sample(sampler, 10));
  EXPECT_CODE(kInvalidArgument, sampler.for_rank(3));
  EXPECT_NO_THROW(sampler.seek(3));
  EXPECT_EQ(sampler.next(), std::nullopt);
}

}  // namespace
}  // namespace shardwise
