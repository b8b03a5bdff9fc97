#include "order/partition.h"

#include <algorithm>

#include "order/kept_slots.h"
#include "order/order_test_support.h"
#include "order/permutation.h"
#include "order/strided_range.h"

namespace shardwise {
namespace {

using detail::KeptSlots;
using detail::Partition;
using detail::Streams;
using test::Samples;

TEST(StreamsTest, SlotsAndPositionsAreABijectionForEveryNumberOfStreams) {
  for (std::uint64_t n = 1; n <= 60; ++n) {
    for (std::uint64_t count = 1; count <= 70; ++count) {
      const Streams streams(n, count);
      Samples positions;
      for (std::uint64_t slot = 0; slot < n; ++slot) {
        positions.push_back(streams.position_of_slot(slot));
        ASSERT_EQ(streams.slot_of_position(positions.back()), slot) << n << " " << count;
      }
      ASSERT_TRUE(test::is_each_once(positions, n)) << n << " " << count;
    }
  }
}

TEST(StreamsTest, EachStreamIsAContiguousRun) {
  const Streams streams(10, 4);
  Samples positions;
  for (std::uint64_t slot = 0; slot < 10; ++slot)
    positions.push_back(streams.position_of_slot(slot));
  EXPECT_EQ(positions, (Samples{0, 3, 6, 8, 1, 4, 7, 9, 2, 5}));
}

TEST(PartitionTest, SizesAreWhatTheRanksHoldAndDifferByAtMostOne) {
  for (std::uint64_t n = 0; n <= 50; ++n) {
    for (std::uint64_t world = 1; world <= 12; ++world) {
      for (const Order::Tail tail : {Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad}) {
        std::uint64_t total = 0;
        const Partition first(n, world, 0, tail);
        for (std::uint64_t rank = 0; rank < world; ++rank) {
          const Partition partition(n, world, rank, tail);
          total += partition.size();
          ASSERT_EQ(first.size_of(rank), partition.size());
          ASSERT_LE(first.size() - partition.size(), tail == Order::Tail::kExact ? 1U : 0U);
          if (partition.size() > 0) {
            ASSERT_LT(partition.slot(partition.size() - 1), partition.delivered_slots());
          }
        }
        ASSERT_EQ(total, first.delivered_slots());
        const std::uint64_t rows = tail == Order::Tail::kDrop ? n / world : (n + world - 1) / world;
        ASSERT_EQ(total, tail == Order::Tail::kExact ? n : rows * world);
      }
    }
  }
}

TEST(PartitionTest, CountsWhatLiesBeforeASlot) {
  const Partition partition(10, 4, 3);
  EXPECT_EQ(partition.size(), 2U);
  EXPECT_EQ(partition.max_size(), 3U);
  EXPECT_EQ(partition.slot(1), 7U);
  for (std::uint64_t slot = 0; slot <= 10; ++slot) {
    EXPECT_EQ(partition.index_at(slot), (slot > 3 ? 1U : 0U) + (slot > 7 ? 1U : 0U)) << slot;
  }
}

TEST(PartitionTest, InvalidCombinationsNameTheValidOnes) {
  EXPECT_THAT(test::error_text([] { Partition(100, 8, 0, Order::Tail::kExact, 3); }),
              testing::AllOf(testing::HasSubstr("streams 3 with world_size 8"),
                             testing::HasSubstr("streams 1, 2, 4, 8"),
                             testing::HasSubstr("world_size 6 or 9")));
  EXPECT_THAT(test::error_text([] { Partition(100, 8, 0, Order::Tail::kExact, 20); }),
              testing::AllOf(testing::HasSubstr("1, 2, 4, 8, 16, 24"),
                             testing::HasSubstr("world_size 5 or 10")));
  EXPECT_THAT(test::error_text([] { Partition(100, 8, 8); }), testing::HasSubstr("[0, 8)"));
  EXPECT_THAT(test::error_text([] { Partition(100, 0, 0); }),
              testing::HasSubstr("world_size is 0"));
  EXPECT_THAT(test::error_text([] { Partition(100, 1, 0, Order::Tail::kExact, 0); }),
              testing::HasSubstr("streams is 0"));
  EXPECT_EQ(test::error_code(
                [] { Partition(100, (1U << 31) - 3, 0, Order::Tail::kExact, kMaxSamples - 1); }),
            ErrorCode::kInvalidArgument);
}

TEST(StridedRangeTest, CountsAndMeetsAsItsNumbersDoOneByOne) {
  for (std::uint64_t first = 0; first < 14; ++first) {
    for (const std::uint64_t stride : {1U, 2U, 3U, 6U, 12U, 18U}) {
      for (std::uint64_t count = 0; count < 9; ++count) {
        const detail::StridedRange range{first, stride, count};
        std::vector<std::uint64_t> numbers;
        for (std::uint64_t i = 0; i < count; ++i) numbers.push_back(range[i]);
        for (std::uint64_t number = 0; number < 60; ++number) {
          const auto below = [&](std::uint64_t one) { return one < number; };
          ASSERT_EQ(range.count_below(number),
                    static_cast<std::uint64_t>(std::ranges::count_if(numbers, below)));
        }
        for (std::uint64_t begin = 0; begin < 6; ++begin) {
          for (std::uint64_t size = 0; begin + size <= 6; ++size) {
            const auto is_in = [&](std::uint64_t one) {
              return one % 6 >= begin && one % 6 < begin + size;
            };
            ASSERT_EQ(range.meets(6, begin, size), std::ranges::any_of(numbers, is_in))
                << first << " " << stride << " " << count << " " << begin << " " << size;
          }
        }
      }
    }
  }
}

TEST(KeptSlotsTest, NumbersWhatIsKeptWithoutGaps) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const std::uint64_t n = random() % 50;
    std::vector<KeptSlots::Range> ranges;
    std::vector<bool> skipped(n);
    for (std::uint64_t i = random() % 6; i > 0; --i) {
      const std::uint64_t begin = random() % 60;
      const std::uint64_t end = begin + random() % 8;
      ranges.push_back({begin, end});
      for (std::uint64_t slot = begin; slot < std::min(end, n); ++slot) skipped[slot] = true;
    }
    const KeptSlots kept(n, ranges);
    std::uint64_t before = 0;
    for (std::uint64_t slot = 0; slot < n; ++slot) {
      ASSERT_EQ(kept.kept_before(slot), before) << trial;
      ASSERT_EQ(kept.is_kept(slot), !skipped[slot]) << trial;
      if (skipped[slot]) continue;
      ASSERT_EQ(kept.slot(before), slot) << trial;
      std::uint64_t run = 0;
      while (slot + run < n && !skipped[slot + run]) ++run;
      ASSERT_GE(kept.run_length(before), run) << trial;
      ASSERT_TRUE(slot + run == n || kept.run_length(before) == run) << trial;
      ++before;
    }
    ASSERT_EQ(kept.size(), before);
    ASSERT_EQ(kept.num_skipped(), n - before);
    std::uint64_t in_gaps = 0;
    std::uint64_t last_end = 0;
    for (const KeptSlots::Gap& gap : kept.gaps()) {
      ASSERT_TRUE(gap.begin < gap.end && (in_gaps == 0 || gap.begin > last_end)) << trial;
      in_gaps += gap.end - gap.begin;
      last_end = gap.end;
    }
    ASSERT_EQ(in_gaps, n - before) << trial;
    ASSERT_EQ(kept.slot(before), n);
    ASSERT_EQ(kept.kept_before(n), before);
  }
}

}  // namespace
}  // namespace shardwise
