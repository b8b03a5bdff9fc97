#include "shardwise/order/skip_list.h"

#include "order/order_test_support.h"
#include "order/permutation.h"
#include "support/says.h"

namespace shardwise {
namespace {

using testing::ElementsAre;
using testing::Pair;

using Range = std::pair<std::uint64_t, std::uint64_t>;

TEST(SkipListTest, KeepsItselfSortedAndMerged) {
  SkipList list;
  EXPECT_TRUE(list.empty());
  list.add_sample(9);
  list.add_sample(3, "a broken image");
  list.add_sample(9);
  EXPECT_THAT(list.samples(), ElementsAre(Pair(3, SkipList::Entry{{}, "a broken image"}),
                                          Pair(9, SkipList::Entry{})));
  list.add_positions(1, 10, 20);
  list.add_positions(1, 30, 40);
  list.add_positions(0, 5, 6);
  list.add_positions(1, 15, 30);
  list.add_positions(1, 50, 50);
  EXPECT_THAT(list.ranges(), ElementsAre(Pair(Range{0, 5}, 6), Pair(Range{1, 10}, 40)));
  list.add_positions(1, 39, 39);
  list.add_positions(1, 12, 13);
  EXPECT_EQ(list.ranges().size(), 2U) << "inside another one";
  EXPECT_CODE(kInvalidArgument, list.add_positions(0, 2, 1));
  EXPECT_FALSE(list.empty());
}

TEST(SkipListTest, RandomRangesAreAsPositionsOneByOne) {
  std::mt19937_64 random(4);
  for (int trial = 0; trial < 500; ++trial) {
    SkipList list;
    std::array<std::array<bool, 40>, 3> skipped{};
    for (std::uint64_t i = random() % 8; i > 0; --i) {
      const std::uint64_t epoch = random() % 3;
      const std::uint64_t begin = random() % 30;
      const std::uint64_t end = begin + random() % 8;
      list.add_positions(epoch, begin, end);
      for (std::uint64_t p = begin; p < end; ++p) skipped[epoch][p] = true;
    }
    SkipList one_by_one;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      for (std::uint64_t p = 40; p-- > 0;) {
        if (skipped[epoch][p]) one_by_one.add_positions(epoch, p, p + 1);
      }
    }
    ASSERT_EQ(list, one_by_one) << trial;
  }
}

TEST(SkipListTest, StepsAreRangesOfPositions) {
  SkipList list;
  list.add_steps(2, 3, 5, 4, 2);
  EXPECT_THAT(list.ranges(), ElementsAre(Pair(Range{2, 24}, 40)));
  list = {};
  const std::uint64_t most = ~std::uint64_t{0};
  list.add_steps(2, 1, most, most, most);
  EXPECT_THAT(list.ranges(), ElementsAre()) << "all of it lies behind the last position";
  list.add_steps(2, 1, most, 1U << 31, 1U << 30);
  EXPECT_THAT(list.ranges(), ElementsAre(Pair(Range{2, std::uint64_t{1} << 61}, kMaxSamples)));
  EXPECT_CODE(kInvalidArgument, list.add_steps(0, 2, 1, 3, 4));
}

TEST(SkipListTest, AReasonIsOneLine) {
  SkipList list;
  list.add_sample(1, "two\nlines\tand\ra \x01");
  EXPECT_EQ(list.samples().at(1).reason, "two lines and a  ");
  list.add_sample(2, std::string(1000, 'x'));
  std::string shortened(SkipList::kMaxReason - 3, 'x');
  shortened.append(3, '.');
  EXPECT_EQ(list.samples().at(2).reason, shortened);
  list.add_sample(3, "schön");
  EXPECT_EQ(list.samples().at(3).reason, "schön");
}

TEST(SkipListTest, ALongReasonEndsWithAWordOrACharacter) {
  std::string words;
  while (words.size() < 1000) words += "word ";
  std::string umlauts = "x";
  while (umlauts.size() < 1000) umlauts += "ö";
  SkipList list, again;
  list.add_sample(1, words);
  list.add_sample(2, umlauts);
  list.add_sample(3, std::string(SkipList::kMaxReason, 'y'));  // the longest reason that is not cut
  EXPECT_THAT(list.samples().at(1).reason, testing::EndsWith(" word..."));
  EXPECT_GT(list.samples().at(1).reason.size(), SkipList::kMaxReason - 10);
  const std::string kept = list.samples().at(2).reason;
  EXPECT_THAT(kept, testing::EndsWith("ö..."));
  EXPECT_LE(kept.size(), SkipList::kMaxReason);
  EXPECT_EQ(list.samples().at(3).reason, std::string(SkipList::kMaxReason, 'y'));
  again.merge(list);
  EXPECT_EQ(again, list) << "what was shortened is not shortened again";
}

TEST(SkipListTest, MergingTakesAllEntries) {
  SkipList list;
  list.add_sample(1, "mine", {0, 5});
  list.add_positions(0, 0, 10);
  SkipList other;
  other.add_sample(1, "theirs", {3, 0});
  other.add_sample(2, "theirs", {1, 7});
  other.add_positions(0, 10, 12);
  other.add_positions(1, 1, 2);
  list.merge(other);
  EXPECT_THAT(list.samples(), ElementsAre(Pair(1, SkipList::Entry{{0, 5}, "mine"}),
                                          Pair(2, SkipList::Entry{{1, 7}, "theirs"})));
  EXPECT_THAT(list.ranges(), ElementsAre(Pair(Range{0, 0}, 12), Pair(Range{1, 1}, 2)));
  const SkipList before = list;
  list.merge(list);
  list.merge_from(list, {0, 1});
  EXPECT_EQ(list, before) << "also of itself";
}

}  // namespace
}  // namespace shardwise
