#include "order/partition.h"

#include <algorithm>

#include "order/order_test_support.h"
#include "order/permutation.h"
#include "order/strided_range.h"
#include "support/says.h"

namespace shardwise {
namespace {

using detail::Partition;

TEST(PartitionTest, InvalidCombinationsNameTheValidOnes) {
  EXPECT_ERROR(test::Says("streams 3 with world_size 8", "streams 1, 2, 4, 8", "world_size 6 or 9"),
               Partition(100, 8, 0, Order::Tail::kExact, 3));
  EXPECT_ERROR(test::Says("1, 2, 4, 8, 16, 24", "world_size 5 or 10"),
               Partition(100, 8, 0, Order::Tail::kExact, 20));
  EXPECT_ERROR(test::Says("[0, 8)"), Partition(100, 8, 8));
  EXPECT_ERROR(test::Says("world_size is 0"), Partition(100, 0, 0));
  EXPECT_ERROR(test::Says("streams is 0"), Partition(100, 1, 0, Order::Tail::kExact, 0));
  EXPECT_CODE(kInvalidArgument,
              Partition(100, (1U << 31) - 3, 0, Order::Tail::kExact, kMaxSamples - 1));
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

}  // namespace
}  // namespace shardwise
