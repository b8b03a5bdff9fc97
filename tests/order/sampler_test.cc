#include "shardwise/order/sampler.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "order/order_test_support.h"

namespace shardwise {
namespace {

using test::delivered;
using test::Samples;

static_assert(std::input_iterator<Sampler::Iterator>);
static_assert(std::sentinel_for<std::default_sentinel_t, Sampler::Iterator>);

Samples sorted(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}

/// What all ranks deliver together.
Samples union_of_ranks(const Sampler& sampler) {
  Samples all;
  for (std::uint64_t rank = 0; rank < sampler.world_size(); ++rank) {
    const Samples part = delivered(*sampler.for_rank(rank));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(SamplerTest, IsUsedAsTheReadmeSays) {
  const std::vector<int> data(1003);
  DistributedChunkedSampler order(data,
                                  {.rank = 0, .world_size = 8, .seed = 17, .chunk_size = 100});
  order.set_epoch(3);
  std::size_t count = 0;
  for (const std::uint64_t i : order) {
    ASSERT_LT(i, data.size());
    ++count;
  }
  EXPECT_EQ(count, order.size());
  EXPECT_EQ(order.size(), 126U);
  EXPECT_EQ(order.position(), 126U);
  EXPECT_EQ(order.next(), std::nullopt);
}

TEST(SamplerTest, EachSampleComesExactlyOnceForAllSmallCases) {
  for (std::uint64_t n = 0; n <= 200; ++n) {
    for (std::uint64_t world = 1; world <= 9; ++world) {
      for (const std::uint64_t chunk_size : {1U, 2U, 3U, 7U, 64U}) {
        for (const Tail tail : {Tail::kExact, Tail::kDrop, Tail::kPad}) {
          const std::string trace = "n " + std::to_string(n) + " world " + std::to_string(world) +
                                    " chunk_size " + std::to_string(chunk_size) + " tail " +
                                    std::string(tail_name(tail));
          std::vector<std::uint64_t> times(n);
          std::uint64_t total = 0;
          std::uint64_t smallest = ~std::uint64_t{0};
          std::uint64_t largest = 0;
          for (std::uint64_t rank = 0; rank < world; ++rank) {
            ChunkedSampler sampler(n, {.rank = rank,
                                       .world_size = world,
                                       .seed = n,
                                       .chunk_size = chunk_size,
                                       .tail = tail});
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
            case Tail::kExact:
              ASSERT_EQ(total, n) << trace;
              ASSERT_LE(largest - smallest, 1U) << trace;
              ASSERT_TRUE(n == 0 || (*fewest == 1 && *most == 1)) << trace;
              break;
            case Tail::kDrop:
              ASSERT_EQ(total, n / world * world) << trace;
              ASSERT_EQ(largest, smallest) << trace;
              ASSERT_TRUE(n == 0 || *most <= 1) << trace;
              break;
            case Tail::kPad:
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

/// A valid random configuration of an exact sampler, and its sampler for rank 0.
struct RandomCase {
  std::unique_ptr<Sampler> sampler;
  std::string trace;
};

RandomCase random_case(std::mt19937_64& random) {
  OrderOptions options;
  const std::uint64_t n = random() % 600;
  options.seed = random();
  options.epoch = random() % 5;
  options.world_size = 1 + random() % 12;
  std::vector<std::uint64_t> streams{1, options.world_size, 2 * options.world_size,
                                     5 * options.world_size};
  for (std::uint64_t s = 2; s < options.world_size; ++s) {
    if (options.world_size % s == 0) streams.push_back(s);
  }
  options.streams = streams[random() % streams.size()];
  options.tail = static_cast<Tail>(random() % 3);
  options.shuffle = random() % 8 != 0;
  ShardOffsets offsets = test::offsets_of(test::some_lengths(n, 1 + random() % 80, random()));
  const std::uint64_t kind = random() % 3;
  if (kind != 2) options.window = 1 + random() % 5;
  if (kind == 0) options.chunk_size = 1 + random() % 100;
  for (std::uint64_t i = random() % 3; i > 0 && n > 0; --i) options.skip.add_sample(random() % n);
  for (std::uint64_t i = random() % 3; i > 0; --i) {
    const std::uint64_t begin = random() % (n + 5);
    options.skip.add_slots(random() % 5, begin, begin + random() % 9);
  }
  RandomCase made;
  made.trace = "kind " + std::to_string(kind) + " n " + std::to_string(n) + " world " +
               std::to_string(options.world_size) + " streams " + std::to_string(options.streams) +
               " window " + std::to_string(options.window) + " tail " +
               std::string(tail_name(options.tail));
  if (kind == 0) made.sampler = std::make_unique<ChunkedSampler>(n, options);
  if (kind == 1) made.sampler = std::make_unique<ShardedSampler>(offsets, options);
  if (kind == 2) made.sampler = std::make_unique<SequentialSampler>(n, options);
  return made;
}

TEST(SamplerTest, RandomCasesKeepEveryPromise) {
  const std::uint64_t seed = 77;
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 1500; ++trial) {
    const auto [sampler, what] = random_case(random);
    const std::string trace =
        what + ", trial " + std::to_string(trial) + " seed " + std::to_string(seed);
    const Hash128 fingerprint{1, 2};
    EpochAudit audit(fingerprint);
    std::map<std::uint64_t, std::vector<Delivery>> found;
    std::uint64_t smallest = ~std::uint64_t{0};
    std::uint64_t largest = 0;
    for (std::uint64_t rank = 0; rank < sampler->world_size(); ++rank) {
      const std::unique_ptr<Sampler> mine = sampler->for_rank(rank);
      ASSERT_EQ(mine->rank(), rank);
      const Samples part = delivered(*mine);
      ASSERT_EQ(part.size(), mine->size()) << trace;
      audit.add(part);
      smallest = std::min(smallest, mine->size());
      largest = std::max(largest, mine->size());
      for (std::uint64_t i = 0; i < part.size(); ++i) found[part[i]].push_back({rank, i, 0});
      // Entered anywhere, and in batches of any size, it is the same sequence.
      if (part.empty()) continue;
      const std::uint64_t start = random() % part.size();
      ASSERT_EQ((*mine)[start], part[start]) << trace;
      mine->seek(start);
      Samples batch(1 + random() % 700);
      ASSERT_EQ(mine->next(), part[start]) << trace;
      const std::size_t count = mine->next_batch(batch);
      ASSERT_EQ(count, std::min<std::size_t>(batch.size(), part.size() - start - 1)) << trace;
      ASSERT_TRUE(std::equal(batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(count),
                             part.begin() + static_cast<std::ptrdiff_t>(start) + 1))
          << trace;
      ASSERT_EQ(mine->position(), start + 1 + count) << trace;
    }
    ASSERT_LE(largest - smallest, 1U) << trace;
    const AuditVerdict verdict = audit.verdict(sampler->expectation(fingerprint));
    ASSERT_TRUE(verdict.proven) << trace << ": " << verdict.text(0);
    for (std::uint64_t sample = 0; sample < sampler->spec().num_samples; ++sample) {
      std::vector<Delivery> told = sampler->deliveries(sample);
      for (Delivery& delivery : told) delivery.slot = 0;
      std::sort(told.begin(), told.end());
      ASSERT_EQ(told, found[sample]) << trace << " sample " << sample;
    }
  }
}

TEST(SamplerTest, TheUnionOfEachStepIsTheSameForAllWorldSizes) {
  const std::uint64_t n = 365;
  for (const std::uint64_t streams : {1U, 2U, 4U, 6U, 12U}) {
    for (const std::uint64_t global_batch : {12U, 24U, 60U}) {
      std::vector<Samples> steps;  // by the first world size; the others have to agree
      for (std::uint64_t world = 1; world <= global_batch; ++world) {
        if (global_batch % world != 0 || (world % streams != 0 && streams % world != 0)) continue;
        const ChunkedSampler first(
            n, {.world_size = world, .seed = 5, .chunk_size = 10, .window = 2, .streams = streams});
        std::vector<Samples> mine((n + global_batch - 1) / global_batch);
        for (std::uint64_t rank = 0; rank < world; ++rank) {
          const Samples part = delivered(*first.for_rank(rank));
          for (std::size_t i = 0; i < part.size(); ++i) {
            mine[i / (global_batch / world)].push_back(part[i]);
          }
        }
        for (Samples& step : mine) step = sorted(step);
        if (steps.empty()) steps = mine;
        ASSERT_EQ(mine, steps) << "streams " << streams << " world " << world;
      }
    }
  }
}

TEST(SamplerTest, ResumesAtEveryPositionOnEveryWorldSizeWithoutLossOrRepeat) {
  const std::uint64_t n = 53;
  for (const std::uint64_t streams : {1U, 2U, 4U}) {
    for (const Tail tail : {Tail::kExact, Tail::kDrop, Tail::kPad}) {
      OrderOptions options{.world_size = 4,
                           .seed = 3,
                           .chunk_size = 7,
                           .window = 2,
                           .streams = streams,
                           .tail = tail};
      const ChunkedSampler before(n, options);
      std::vector<std::unique_ptr<Sampler>> ranks;
      for (std::uint64_t rank = 0; rank < 4; ++rank) ranks.push_back(before.for_rank(rank));
      for (std::uint64_t consumed_each = 0; consumed_each <= before.size(); ++consumed_each) {
        Samples consumed;
        for (auto& rank : ranks) {
          const Samples part = delivered(*rank);
          consumed.insert(consumed.end(), part.begin(),
                          part.begin() + static_cast<std::ptrdiff_t>(
                                             std::min<std::uint64_t>(part.size(), consumed_each)));
          rank->seek(std::min(consumed_each, rank->size()));
        }
        const std::uint64_t slots = before.slots_after(consumed_each, 1);
        ASSERT_EQ(ranks[0]->slots_consumed(), slots);
        for (const std::uint64_t world : {1U, 2U, 4U, 8U, 12U}) {
          options.world_size = world;
          const ChunkedSampler after(n, options);
          Samples all = consumed;
          std::uint64_t smallest = ~std::uint64_t{0};
          std::uint64_t largest = 0;
          for (std::uint64_t rank = 0; rank < world; ++rank) {
            const std::unique_ptr<Sampler> mine = after.for_rank(rank);
            mine->resume_at(slots);
            const Samples part = test::drain(*mine);
            all.insert(all.end(), part.begin(), part.end());
            smallest = std::min<std::uint64_t>(smallest, part.size());
            largest = std::max<std::uint64_t>(largest, part.size());
          }
          ASSERT_LE(largest - smallest, 1U);
          if (tail == Tail::kExact || world == 4) {
            ASSERT_EQ(sorted(all), sorted(tail == Tail::kExact ? test::first_numbers(n)
                                                               : union_of_ranks(before)))
                << "streams " << streams << " after " << consumed_each << " world " << world;
          } else if (tail == Tail::kDrop) {
            // Another world size drops other slots; nothing comes twice.
            ASSERT_EQ(std::set<std::uint64_t>(all.begin(), all.end()).size(), all.size());
          } else {
            ASSERT_EQ(std::set<std::uint64_t>(all.begin(), all.end()).size(), n);
          }
        }
      }
    }
  }
}

TEST(SamplerTest, ResumingTwiceCountsFromWhereItResumed) {
  const std::uint64_t n = 101;
  Samples all;
  std::uint64_t slots = 0;
  // Each part of the epoch on another number of ranks, a few steps each.
  for (const std::uint64_t world : {3U, 5U, 1U, 8U, 2U, 100U}) {
    const ChunkedSampler sampler(n, {.world_size = world, .seed = 8, .chunk_size = 9});
    std::uint64_t next_slots = 0;
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      const std::unique_ptr<Sampler> mine = sampler.for_rank(rank);
      mine->resume_at(slots);
      Samples batch(4);
      batch.resize(mine->next_batch(batch));
      all.insert(all.end(), batch.begin(), batch.end());
      next_slots = std::max(next_slots, mine->slots_consumed());
    }
    EXPECT_EQ(next_slots, sampler.slots_after(4, 1, slots));
    EXPECT_EQ(sampler.slots_after(4, 1, slots), sampler.slots_after(1, 4, slots));
    slots = next_slots;
  }
  EXPECT_EQ(slots, n);
  EXPECT_TRUE(test::is_each_once(all, n));
}

TEST(SamplerTest, AnEntryAddedInMidEpochLosesAndRepeatsNothingElse) {
  for (const std::uint64_t streams : {1U, 4U}) {
    ChunkedSampler sampler(200, {.world_size = 4, .seed = 1, .chunk_size = 20, .streams = streams});
    Samples all;
    std::vector<std::unique_ptr<Sampler>> ranks;
    for (std::uint64_t rank = 0; rank < 4; ++rank) ranks.push_back(sampler.for_rank(rank));
    const auto take = [&](std::size_t count) {
      for (auto& rank : ranks) {
        Samples batch(count);
        batch.resize(rank->next_batch(batch));
        all.insert(all.end(), batch.begin(), batch.end());
      }
    };
    take(10);
    SkipList skip;
    skip.add_sample(all[5]);  // already delivered: nothing happens
    skip.add_steps(0, 20, 22, 4, 1);
    for (auto& rank : ranks) rank->set_skip(skip);
    take(7);
    skip.add_sample(ranks[0]->at(40));  // yet to come
    for (auto& rank : ranks) rank->set_skip(skip);
    take(1000);
    EXPECT_EQ(all.size(), 200U - 8 - 1) << streams;
    EXPECT_EQ(std::set<std::uint64_t>(all.begin(), all.end()).size(), all.size()) << streams;
  }
}

TEST(SamplerTest, AStepLeftOutIsJustThatStep) {
  OrderOptions options{.world_size = 2, .seed = 4, .chunk_size = 5};
  const ChunkedSampler plain(40, options);
  options.skip.add_steps(0, 1, 2, 2, 3);
  const ChunkedSampler skipping(40, options);
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    Samples expected = delivered(*plain.for_rank(rank));
    expected.erase(expected.begin() + 3, expected.begin() + 6);
    EXPECT_EQ(delivered(*skipping.for_rank(rank)), expected);
  }
  ChunkedSampler next_epoch = skipping;
  next_epoch.set_epoch(1);
  EXPECT_EQ(next_epoch.size(), 20U);
}

TEST(SamplerTest, EpochsAndSeedsGiveOtherOrdersAndTheSameAgain) {
  ChunkedSampler sampler(1000, {.seed = 1, .chunk_size = 50});
  const Samples first = delivered(sampler);
  sampler.set_epoch(1);
  EXPECT_NE(delivered(sampler), first);
  sampler.set_epoch(0);
  EXPECT_EQ(delivered(sampler), first);
  EXPECT_NE(delivered(ChunkedSampler(1000, {.seed = 2, .chunk_size = 50})), first);
  EXPECT_EQ(delivered(ChunkedSampler(1000, {.seed = 1, .chunk_size = 50, .shuffle = false})),
            test::first_numbers(1000));
  EXPECT_EQ(delivered(ShardedSampler(test::offsets_of({3, 4}), {.shuffle = false})),
            test::first_numbers(7));
}

TEST(SamplerTest, GoldenRanksNeverChange) {
  const auto rank = [](std::uint64_t r, std::uint64_t streams) {
    return delivered(ChunkedSampler(23, {.rank = r,
                                         .world_size = 3,
                                         .seed = 42,
                                         .epoch = 5,
                                         .chunk_size = 5,
                                         .window = 2,
                                         .streams = streams}));
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

TEST(SamplerTest, WorksAtTenToTheTwelfth) {
  for (const std::uint64_t streams : {1U, 8U, 64U}) {
    ChunkedSampler sampler(
        std::uint64_t{1'000'000'000'000},
        {.rank = 3, .world_size = 8, .seed = 1, .window = 8, .streams = streams});
    EXPECT_EQ(sampler.size(), 125'000'000'000U);
    std::set<std::uint64_t> seen;
    for (const std::uint64_t start :
         {std::uint64_t{0}, std::uint64_t{62'500'000'001}, sampler.size() - 100}) {
      sampler.seek(start);
      for (int i = 0; i < 100; ++i) {
        const std::uint64_t sample = *sampler.next();
        EXPECT_TRUE(seen.insert(sample).second);
        const std::vector<Delivery> found = sampler.deliveries(sample);
        ASSERT_EQ(found.size(), 1U);
        EXPECT_EQ(found[0].rank, 3U);
        EXPECT_EQ(found[0].index, sampler.position() - 1);
      }
    }
    EXPECT_EQ(sampler.next(), std::nullopt);
  }
}

TEST(SamplerTest, ShardedReadsAFewShardsAtATime) {
  const std::vector<std::uint64_t> lengths = test::some_lengths(5000, 200, 3);
  const ShardOffsets offsets = test::offsets_of(lengths);
  const ShardedSampler sampler(offsets, {.seed = 1, .window = 3});
  std::vector<std::size_t> visits;
  std::set<std::size_t> window;
  std::size_t windows = 0;
  for (const std::uint64_t sample : delivered(sampler)) {
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
  const auto text = [](auto&& make) { return test::error_text(make); };
  EXPECT_THAT(
      text([] { SequentialSampler(10, {.chunk_size = 5}); }),
      testing::HasSubstr("chunk_size means nothing to the sequential sampler; it is for chunked"));
  EXPECT_THAT(text([] { SequentialSampler(10, {.window = 5}); }), testing::HasSubstr("window"));
  EXPECT_THAT(text([] { ChunkedSampler(10, {.shufflefirst = true}); }),
              testing::HasSubstr("shufflefirst"));
  EXPECT_THAT(text([] { ChunkedSampler(10, {.epoch_size = 7}); }),
              testing::HasSubstr("epoch_size"));
  EXPECT_THAT(text([] { ChunkedSampler(10, {.chunk_size = 0}); }),
              testing::HasSubstr("chunk_size is 0"));
  EXPECT_THAT(text([] { ChunkedSampler(10, {.world_size = 4, .streams = 3}); }),
              testing::HasSubstr("valid here are streams 1, 2, 4"));
  EXPECT_THAT(text([] { ChunkedSampler(-5); }), testing::HasSubstr("cannot be -5"));
  OrderOptions options;
  options.skip.add_sample(10);
  EXPECT_THAT(text([&] { ChunkedSampler(10, options); }), testing::HasSubstr("no sample 10"));
}

TEST(SamplerTest, PositionsOutOfRangeAreRefused) {
  ChunkedSampler sampler(10, {.rank = 1, .world_size = 3});
  EXPECT_THAT(test::error_text([&] { sampler.seek(4); }), testing::HasSubstr("delivers 3 samples"));
  EXPECT_THAT(test::error_text([&] { sampler.at(3); }),
              testing::HasSubstr("no sample 3 on rank 1"));
  EXPECT_THAT(test::error_text([&] { sampler.deliveries(10); }),
              testing::HasSubstr("sample numbers are in [0, 10)"));
  EXPECT_NO_THROW(sampler.seek(3));
  EXPECT_EQ(sampler.next(), std::nullopt);
}

}  // namespace
}  // namespace shardwise
