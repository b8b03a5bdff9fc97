#include "order/shard_schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "order/epoch_order.h"
#include "order/order_test_support.h"
#include "order/shard_use.h"
#include "order/wids_sampler.h"
#include "shardwise/base/error.h"
#include "support/chain.h"
#include "support/says.h"

namespace shardwise {
namespace {

using test::Dice;
using test::Samples;
using testing::HasSubstr;

std::uint64_t shard_of(const Samples& starts, std::uint64_t sample) {
  std::uint64_t shard = 0;
  while (starts[shard + 1] <= sample) ++shard;
  return shard;
}

constexpr std::uint64_t kNothing = ~std::uint64_t{0};

/// The sample that is delivered in a slot, and its position in the epoch.
struct Delivered {
  std::uint64_t sample = kNothing;
  std::uint64_t position = kNothing;
  bool is_padding = false;
};

/// Returns the deliveries of all ranks, indexed by slot, by reading them sample by sample.
std::vector<Delivered> deliveries_by_slot(const Sampler& sampler) {
  const std::uint64_t num_shares = sampler.world_size() / sampler.replicas();
  std::vector<Delivered> by_slot;
  for (std::uint64_t share = 0; share < num_shares; ++share) {
    const auto mine = sampler.for_rank(share * sampler.replicas());
    for (std::uint64_t i = 0; i < mine->size(); ++i) {
      const std::uint64_t slot = i * num_shares + share;
      by_slot.resize(std::max<std::size_t>(by_slot.size(), slot + 1));
      by_slot[slot] = {mine->at(i), mine->position_in_epoch(i)};
    }
  }
  // A pad in the last row repeats an earlier sample, so its position occurred before.
  for (std::size_t slot = by_slot.size();
       slot-- > 1 && sampler.order().tail == Order::Tail::kPad;) {
    bool any_later = false;
    for (std::size_t other = 0; other < slot; ++other) {
      any_later = any_later || by_slot[other].position >= by_slot[slot].position;
    }
    if (!any_later || sampler.order().balance_bytes) break;
    by_slot[slot].is_padding = true;
  }
  return by_slot;
}

bool in_range(const Sampler& sampler, const RankOptions::Range& ranks, std::uint64_t slot) {
  const std::uint64_t first =
      slot % (sampler.world_size() / sampler.replicas()) * sampler.replicas();
  return first < ranks.first + ranks.count && first + sampler.replicas() > ranks.first;
}

/// Computes the group of each sample in pass `pass` from the chunk size and the window alone.
std::map<std::uint64_t, std::uint64_t> group_of_sample(const Sampler& sampler,
                                                       const Samples& starts, std::uint64_t pass) {
  std::map<std::uint64_t, std::uint64_t> groups;
  const std::uint64_t n = sampler.num_samples();
  const std::uint64_t seed = sampler.order().seed;
  if (const auto* wids = std::get_if<Wids>(&sampler.order().kind)) {
    const std::uint64_t shares = sampler.world_size() / sampler.replicas();
    const std::uint64_t block = (n + shares - 1) / shares;
    for (std::uint64_t sample = 0; sample < n; ++sample) {
      // In wids each rank has its own chunks.
      groups[sample] = sample / block * n + sample % block / wids->chunk_size;
    }
    return groups;
  }
  std::optional<EpochOrder> order;
  if (const auto* chunked = std::get_if<Chunked>(&sampler.order().kind)) {
    order =
        EpochOrder::chunked(n, chunked->chunk_size, {seed, pass, chunked->window, chunked->phase});
  } else if (const auto* sharded = std::get_if<Sharded>(&sampler.order().kind)) {
    order =
        EpochOrder::sharded(std::make_shared<const Samples>(starts), {seed, pass, sharded->window});
  } else {
    for (std::uint64_t sample = 0; sample < n; ++sample) groups[sample] = shard_of(starts, sample);
    return groups;
  }
  std::vector<EpochOrder::SampleRange> ranges;
  for (std::uint64_t group = 0; group < order->num_groups(); ++group) {
    order->list_group(group, ranges);
    for (const auto& [first, last] : ranges) {
      for (std::uint64_t sample = first; sample < last; ++sample) groups[sample] = group;
    }
  }
  return groups;
}

/// Computes, slot by slot, the uses that ShardSchedule guarantees for an order of passes or wids.
std::vector<UseInterval> uses_by_slot(const Sampler& sampler, const Samples& starts,
                                      const RankOptions::Range& ranks,
                                      const std::vector<Delivered>& by_slot) {
  const bool is_wids = std::holds_alternative<Wids>(sampler.order().kind);
  const std::uint64_t n = sampler.num_samples();
  const std::uint64_t epoch_size = sampler.order().epoch_size == 0 ? n : sampler.order().epoch_size;
  const std::uint64_t streams =
      is_wids ? sampler.world_size() / sampler.replicas() : sampler.order().streams;
  struct Pass {
    std::map<std::uint64_t, std::uint64_t> groups;
    std::map<std::uint64_t, std::set<std::uint64_t>> shards;  // the shards of each group
  };
  std::map<std::uint64_t, Pass> passes;
  struct Piece {
    std::uint64_t begin;
    std::uint64_t end = 0;
    bool is_delivered = false;
    const std::set<std::uint64_t>* shards = nullptr;
  };
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, Piece> pieces;
  std::vector<UseInterval> uses;
  for (std::uint64_t slot = 0; slot < by_slot.size(); ++slot) {
    const Delivered& here = by_slot[slot];
    if (here.sample == kNothing) continue;
    if (here.is_padding) {
      if (in_range(sampler, ranks, slot)) {
        uses.push_back({shard_of(starts, here.sample), slot, slot + 1});
      }
      continue;
    }
    const std::uint64_t in_all = sampler.epoch() * epoch_size + here.position;
    const std::uint64_t number = is_wids ? sampler.epoch() : in_all / n;
    Pass& pass = passes[number];
    if (pass.groups.empty()) {
      pass.groups = group_of_sample(sampler, starts, number);
      for (const auto& [sample, group] : pass.groups) {
        pass.shards[group].insert(shard_of(starts, sample));
      }
    }
    const std::uint64_t stream = (is_wids ? here.position : in_all % n) % streams;
    const std::uint64_t group = pass.groups.at(here.sample);
    Piece& piece = pieces.try_emplace({number, group, stream}, Piece{slot}).first->second;
    piece.end = slot + 1;
    piece.is_delivered = piece.is_delivered || in_range(sampler, ranks, slot);
    piece.shards = &pass.shards.at(group);
  }
  for (const auto& [where, piece] : pieces) {
    if (!piece.is_delivered) continue;
    for (const std::uint64_t shard : *piece.shards) {
      uses.push_back({shard, piece.begin, piece.end});
    }
  }
  std::sort(uses.begin(), uses.end());
  std::vector<UseInterval> merged;
  for (const UseInterval& use : uses) {
    if (!merged.empty() && merged.back().shard == use.shard && merged.back().end >= use.begin) {
      merged.back().end = std::max(merged.back().end, use.end);
    } else {
      merged.push_back(use);
    }
  }
  std::sort(merged.begin(), merged.end(), [](const UseInterval& x, const UseInterval& y) {
    return std::tie(x.begin, x.shard) < std::tie(y.begin, y.shard);
  });
  return merged;
}

/// True if slot `slot` is inside one of the uses of its shard.
bool is_in_a_use(const EpochSchedule& epoch, std::uint64_t shard, std::uint64_t slot) {
  return std::any_of(epoch.uses.begin(), epoch.uses.end(), [&](const UseInterval& use) {
    return use.shard == shard && use.begin <= slot && slot < use.end;
  });
}

std::vector<RankOptions::Range> some_nodes(std::uint64_t world) {
  std::vector<RankOptions::Range> nodes = {{0, world}, {world - 1, 1}};
  if (world > 1) nodes.push_back({world / 2, world - world / 2});
  if (world > 2) nodes.push_back({1, world - 2});
  return nodes;
}

/// Expects that each sample of a node is delivered in a slot within a use of its shard. With
/// `exactly`, also expects that the uses equal those of uses_by_slot().
void expect_promise(const Sampler& sampler, const Samples& starts, const std::string& what,
                    bool exactly = true) {
  const std::optional<ShardSchedule> schedule = ShardSchedule::of(sampler, starts);
  ASSERT_TRUE(schedule) << what;
  const std::vector<Delivered> by_slot = deliveries_by_slot(sampler);
  if (std::holds_alternative<Wids>(sampler.order().kind)) {
    EXPECT_GE(schedule->num_slots(), by_slot.size()) << what;
  } else {
    EXPECT_EQ(schedule->num_slots(), by_slot.size()) << what;
  }
  for (const RankOptions::Range& node : some_nodes(sampler.world_size())) {
    const std::optional<EpochSchedule> epoch = schedule->uses(node);
    const bool is_whole = node.count == sampler.world_size();
    if (!epoch) {
      ASSERT_TRUE(sampler.order().balance_bytes && !is_whole) << what;
      continue;
    }
    ASSERT_EQ(epoch->num_slots, schedule->num_slots());
    const std::string where =
        what + ", ranks " + std::to_string(node.first) + " + " + std::to_string(node.count);
    if (exactly) {
      ASSERT_EQ(epoch->uses, uses_by_slot(sampler, starts, node, by_slot)) << where;
    }
    for (std::uint64_t slot = 0; slot < by_slot.size(); ++slot) {
      if (by_slot[slot].sample == kNothing || !in_range(sampler, node, slot)) continue;
      ASSERT_TRUE(is_in_a_use(*epoch, shard_of(starts, by_slot[slot].sample), slot))
          << where << ", slot " << slot;
    }
    // Uses of a shard do not overlap and are not adjacent. They are sorted by begin and then by
    // shard, and end before the epoch ends.
    std::map<std::uint64_t, std::uint64_t> ends;
    std::pair<std::uint64_t, std::uint64_t> before{0, 0};
    for (const UseInterval& use : epoch->uses) {
      ASSERT_LT(use.begin, use.end) << where;
      ASSERT_LE(use.end, epoch->num_slots) << where;
      ASSERT_LT(use.shard + 1, starts.size()) << where;
      ASSERT_LE(before, std::pair(use.begin, use.shard)) << where;
      before = {use.begin, use.shard};
      if (ends.contains(use.shard)) {
        ASSERT_LT(ends[use.shard], use.begin) << where;
      }
      ends[use.shard] = use.end;
    }
  }
}

Samples starts_of(std::uint64_t n, std::uint64_t max_length) {
  return *test::offsets_of(test::some_lengths(n, max_length, n * 7 + max_length));
}

SampleSet set_of(const Samples& starts) {
  return SampleSet(starts.back())
      .with_shards(std::make_shared<const Samples>(starts))
      .with_bytes([](std::uint64_t sample) { return sample * sample % 97; });
}

/// An order over `n` samples, with ranks, and the epoch in which it begins.
struct Case {
  std::uint64_t n = 0;
  Order order;
  RankOptions ranks;
  std::uint64_t epoch = 0;

  std::unique_ptr<Sampler> sampler(const Samples& starts) const {
    auto made = make_sampler(set_of(starts), order, ranks);
    made->set_epoch(epoch);
    return made;
  }
  std::string text() const {
    return std::string(name_of(order.kind)) + " n " + std::to_string(n) + " world " +
           std::to_string(ranks.world_size) + " replicas " + std::to_string(ranks.replicas) +
           " streams " + std::to_string(order.streams) + " tail " +
           std::string(tail_name(order.tail)) + " epoch_size " + std::to_string(order.epoch_size) +
           " epoch " + std::to_string(epoch);
  }
};

/// Draws sizes, and numbers of ranks and streams that are valid together.
Case some_world(Dice& dice) {
  Case one;
  one.n = dice.between(1, 40);
  one.epoch = dice.below(50);
  const std::uint64_t shares = dice.between(1, 6);
  do {
    one.order.streams = dice.one_of({1U, 2U, 3U, 4U, 6U, 12U, 60U});
  } while (one.order.streams % shares != 0 && shares % one.order.streams != 0);
  const std::uint64_t replicas = dice.one_of({1U, 1U, 2U, 3U});
  one.ranks = {.world_size = shares * replicas, .replicas = replicas};
  return one;
}

OrderKind some_passes(Dice& dice) {
  if (dice.one_in(4)) return Sharded{dice.between(1, 5)};
  if (dice.one_in(4)) return Sequential{};
  return Chunked{dice.one_of({1U, 3U, 4U, 5U, 8U, 100U}), dice.one_of({1U, 2U, 3U, 50U}),
                 dice.one_in(3)};
}

Order::Tail some_tail(Dice& dice) {
  return dice.one_of({Order::Tail::kExact, Order::Tail::kDrop, Order::Tail::kPad});
}

void skip_some(Case& one, std::uint64_t from, Dice& dice) {
  for (std::uint64_t ranges = dice.below(3); ranges > 0; --ranges) {
    const std::uint64_t begin = from + dice.below(one.n);
    one.order.skip.add_positions(one.epoch, begin, begin + dice.below(6));
  }
  if (dice.flip()) one.order.skip.add_sample(dice.below(one.n));
}

TEST(ShardScheduleTest, UsesAreThoseOfEverySlot) {
  test::for_each_seed(4000, 100'000, [](std::uint64_t seed) {
    Dice dice(seed);
    Case one = some_world(dice);
    one.order.kind = some_passes(dice);
    one.order.tail = some_tail(dice);
    if (dice.one_in(4)) {  // epochs that cut a pass
      one.order.tail = Order::Tail::kExact;
      one.order.epoch_size = dice.one_of({1U, 5U, 17U, 45U, 100U});
      one.epoch = dice.below(8);
    }
    if (dice.flip()) skip_some(one, 0, dice);
    const Samples starts = starts_of(one.n, dice.between(2, 9));
    expect_promise(*one.sampler(starts), starts, one.text());
    // The run was begun by as many ranks as there are streams, with no sample left out.
    Case begun = one;
    begun.order.skip = {};
    begun.ranks = {.world_size = one.order.streams};
    const ResumeToken token = begun.sampler(starts)->token_after(dice.below(9));
    if (token.epoch != one.epoch) return;
    one.order.skip = {};
    skip_some(one, token.position, dice);
    const auto resumed = one.sampler(starts);
    resumed->resume(token);
    if (resumed->epoch() != one.epoch) return;  // no sample of the epoch is left
    expect_promise(*resumed, starts, one.text() + " resumed at " + std::to_string(token.position));
  });
}

TEST(ShardScheduleTest, WidsUsesAreThoseOfEverySlot) {
  test::for_each_seed(400, 10'000, [](std::uint64_t seed) {
    Dice dice(seed);
    Case one;
    one.n = dice.between(1, 31);
    one.epoch = 2;
    one.order.kind = Wids{dice.one_of({1U, 4U, 100U}), dice.flip()};
    const std::uint64_t replicas = dice.one_of({1U, 3U});
    one.ranks = {.world_size = dice.between(1, 8) * replicas, .replicas = replicas};
    const Samples starts = starts_of(one.n, 6);
    const auto sampler = one.sampler(starts);
    expect_promise(*sampler, starts, one.text());
    sampler->resume(sampler->token_after(2));
    expect_promise(*sampler, starts, one.text() + " resumed");
  });
}

/// Returns the uses of all ranks, each extended to the borders of the windows of positions that it
/// overlaps.
std::vector<UseInterval> widened(const std::vector<UseInterval>& uses,
                                 const std::vector<Delivered>& by_slot, std::uint64_t window) {
  std::vector<UseInterval> wide;
  for (UseInterval use : uses) {
    const std::uint64_t first = by_slot[use.begin].position / window;
    const std::uint64_t last = by_slot[use.end - 1].position / window;
    while (use.begin > 0 && by_slot[use.begin - 1].position / window == first) --use.begin;
    while (use.end < by_slot.size() && by_slot[use.end].position / window == last) ++use.end;
    const auto same = std::find_if(wide.begin(), wide.end(), [&](const UseInterval& other) {
      return other.shard == use.shard && other.end >= use.begin;
    });
    if (same == wide.end()) {
      wide.push_back(use);
    } else {
      same->end = std::max(same->end, use.end);
    }
  }
  std::sort(wide.begin(), wide.end(), [](const UseInterval& x, const UseInterval& y) {
    return std::tie(x.begin, x.shard) < std::tie(y.begin, y.shard);
  });
  return wide;
}

// Batches by length are read in any order within a window, and by any rank.
TEST(ShardScheduleTest, UsesWithinWindowsReachToTheirBorders) {
  test::for_each_seed(600, 20'000, [](std::uint64_t seed) {
    Dice dice(seed);
    Case one = some_world(dice);
    one.ranks = {.world_size = one.ranks.world_size / one.ranks.replicas};
    one.order.kind = some_passes(dice);
    skip_some(one, 0, dice);
    const Samples starts = starts_of(one.n, 5);
    const auto sampler = one.sampler(starts);
    if (dice.flip()) {
      ResumeToken token = sampler->token_after(0);
      token.epoch = one.epoch;
      token.position = dice.below(one.n);
      sampler->resume(token);
    }
    if (sampler->epoch() != one.epoch) return;  // no sample of the epoch was left
    const auto schedule = ShardSchedule::of(*sampler, starts);
    const std::vector<Delivered> by_slot = deliveries_by_slot(*sampler);
    const RankOptions::Range all{0, one.ranks.world_size};
    for (const std::uint64_t window :
         {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{8}, one.n, std::uint64_t{1} << 32}) {
      const std::vector<UseInterval> expected = widened(schedule->uses(all)->uses, by_slot, window);
      EXPECT_EQ(schedule->uses(all, window)->uses, expected) << one.text() << ", " << window;
      // A single rank has the uses of all ranks.
      EXPECT_EQ(schedule->uses({all.count - 1, 1}, window)->uses, expected) << one.text();
    }
  });
}

TEST(ShardScheduleTest, MixturesNeedWhatTheyDeliver) {
  std::mt19937_64 random(6);
  for (int trial = 0; trial < 300; ++trial) {
    const std::uint64_t sizes[3] = {1 + random() % 200, random() % 30, 1 + random() % 300};
    Samples lengths;
    Mixture mixture;
    for (const std::uint64_t size : sizes) {
      const std::vector<std::uint64_t> some = test::some_lengths(size, 40, random());
      lengths.insert(lengths.end(), some.begin(), some.end());
      Mixture::Part part{.num_samples = size, .weight = static_cast<double>(random() % 4)};
      if (size == 0) part.weight = 0;
      const std::uint64_t kind = random() % 4;
      if (kind == 0) part.kind = Chunked{1 + random() % 30, 1 + random() % 3};
      if (kind == 1) part.kind = Sharded{1 + random() % 3};
      if (kind == 2) part.kind = Sequential{};
      mixture.parts.push_back(part);
    }
    mixture.parts[0].weight += 1;
    Case one;
    const Samples starts = *test::offsets_of(lengths);
    one.n = starts.back();
    one.order = {.seed = random(), .kind = mixture, .epoch_size = 1 + random() % 1000};
    one.ranks = {.world_size = 1 + random() % 6};
    if (random() % 2 == 0) one.ranks = {.world_size = 6, .replicas = 2};
    one.order.balance_bytes = random() % 4 == 0;
    one.epoch = random() % 20;
    if (random() % 2 == 0) {
      one.order.skip.add_sample(random() % one.n);
      const std::uint64_t begin = random() % one.order.epoch_size;
      one.order.skip.add_positions(one.epoch, begin, begin + random() % 300);
    }
    const auto sampler = one.sampler(starts);
    expect_promise(*sampler, starts, one.text() + " trial " + std::to_string(trial), false);
    if (sampler->steps() == 0) continue;
    sampler->resume(sampler->token_after(random() % sampler->steps()));
    expect_promise(*sampler, starts, one.text() + " resumed, trial " + std::to_string(trial),
                   false);
  }
}

TEST(ShardScheduleTest, APieceOfAMixtureReachesOnlyOverItsBlocks) {
  Case one;
  one.n = 2000;
  one.order = {.seed = 4,
               .kind = Mixture{{{.num_samples = 1000, .weight = 3, .kind = Sequential{}},
                                {.num_samples = 1000, .kind = Sequential{}}}},
               .epoch_size = 1300};
  const Samples starts = *test::offsets_of(Samples(40, 50));
  for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
    one.epoch = epoch;
    const auto sampler = one.sampler(starts);
    const std::vector<Delivered> by_slot = deliveries_by_slot(*sampler);
    const EpochSchedule uses = ShardSchedule::of(*sampler, starts)->uses({0, 1}).value();
    for (const UseInterval& use : uses.uses) {
      // The use is not too long: a sample of the shard is delivered in the first block that the use
      // overlaps, and in the last one.
      const auto comes_in_block_of = [&](std::uint64_t slot) {
        const std::uint64_t block = (epoch * 1300 + slot) / 256;
        for (std::uint64_t other = 0; other < 1300; ++other) {
          if ((epoch * 1300 + other) / 256 != block) continue;
          if (shard_of(starts, by_slot[other].sample) == use.shard) return true;
        }
        return false;
      };
      // At an edge of the epoch, the block extends beyond the epoch, and so may have the sample
      // there.
      const bool at_an_edge = use.begin == 0 || use.end == 1300;
      EXPECT_TRUE(at_an_edge || comes_in_block_of(use.begin)) << epoch << " " << use.shard;
      EXPECT_TRUE(at_an_edge || comes_in_block_of(use.end - 1)) << epoch << " " << use.shard;
    }
  }
}

TEST(ShardScheduleTest, WhereBytesAreBalancedUsesAreOfWholeSteps) {
  test::for_each_seed(600, 20'000, [](std::uint64_t seed) {
    Dice dice(seed);
    Case one = some_world(dice);
    one.order.kind = Chunked{4, 2};
    one.order.tail = some_tail(dice);
    one.order.balance_bytes = true;
    one.ranks.batch_size = dice.one_of({1U, 3U});
    const Samples starts = starts_of(one.n, 5);
    const auto sampler = one.sampler(starts);
    expect_promise(*sampler, starts, one.text(), false);
    const EpochSchedule uses =
        ShardSchedule::of(*sampler, starts)->uses({0, one.ranks.world_size}).value();
    const std::uint64_t step = one.ranks.world_size / one.ranks.replicas * one.ranks.batch_size;
    for (const UseInterval& use : uses.uses) {
      EXPECT_EQ(use.begin % step, 0U) << one.text();
      EXPECT_TRUE(use.end % step == 0 || use.end == uses.num_slots) << one.text();
    }
    if (sampler->steps() < 2) return;
    sampler->resume(sampler->token_after(1));
    expect_promise(*sampler, starts, one.text() + " resumed", false);
  });
}

TEST(ShardScheduleTest, WhatHasNoKnownFutureGivesNothing) {
  const Samples starts = starts_of(100, 10);
  EXPECT_FALSE(ShardSchedule::of(*make_sampler(100, {.kind = Resampled{}}), starts));
  const auto ones = make_sampler(100, {.kind = Chunked{1, 1}});
  EXPECT_TRUE(ShardSchedule::of(*ones, starts, 100));
  EXPECT_FALSE(ShardSchedule::of(*ones, starts, 99));
  const auto balanced = make_sampler(
      set_of(starts), {.kind = Chunked{10, 1}, .balance_bytes = true}, {.world_size = 2});
  const auto schedule = ShardSchedule::of(*balanced, starts);
  ASSERT_TRUE(schedule);
  EXPECT_TRUE(schedule->uses({0, 2}));
  EXPECT_FALSE(schedule->uses({0, 1}));
  EXPECT_FALSE(schedule->uses({1, 1}));
}

TEST(ShardScheduleTest, WrongShardsAndRanksAreRefused) {
  const auto sampler = make_sampler(100, {}, {.world_size = 4});
  for (const Samples& starts :
       {Samples{}, Samples{0, 99}, Samples{1, 100}, Samples{0, 60, 50, 100}}) {
    try {
      ShardSchedule::of(*sampler, starts);
      ADD_FAILURE() << starts.size();
    } catch (const InvalidArgument& e) {
      EXPECT_THAT(e.what(), test::Says("does not fit", "100 samples"));
      EXPECT_THAT(e.what(), test::Says("first sample of each", "number"));
    }
  }
  const auto schedule = ShardSchedule::of(*sampler, Samples{0, 50, 100});
  for (const RankOptions::Range& ranks : {RankOptions::Range{4, 1}, RankOptions::Range{0, 5},
                                          RankOptions::Range{3, 2}, RankOptions::Range{0, 0}}) {
    try {
      static_cast<void>(schedule->uses(ranks));
      ADD_FAILURE() << ranks.first;
    } catch (const InvalidArgument& e) {
      EXPECT_THAT(e.what(), HasSubstr("[0, 4)"));
    }
  }
}

}  // namespace
}  // namespace shardwise
