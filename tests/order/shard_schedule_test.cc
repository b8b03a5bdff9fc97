#include "shardwise/order/shard_schedule.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "order/order_test_support.h"
#include "shardwise/base/error.h"
#include "shardwise/order/make_sampler.h"
#include "shardwise/order/wids_sampler.h"

namespace shardwise {
namespace {

using test::Samples;
using testing::HasSubstr;

std::uint64_t shard_of(const Samples& starts, std::uint64_t sample) {
  std::uint64_t shard = 0;
  while (starts[shard + 1] <= sample) ++shard;
  return shard;
}

/// By slot: what all ranks deliver, sample by sample.
Samples samples_by_slot(const Sampler& sampler) {
  Samples by_slot(sampler.partition().delivered_slots(), ~std::uint64_t{0});
  for (std::uint64_t rank = 0; rank < sampler.world_size(); ++rank) {
    const Samples mine = test::delivered(*sampler.for_rank(rank));
    for (std::uint64_t i = 0; i < mine.size(); ++i) {
      by_slot[i * sampler.world_size() + rank] = mine[i];
    }
  }
  return by_slot;
}

bool in_range(const Sampler& sampler, const RankRange& ranks, std::uint64_t slot) {
  const std::uint64_t rank = slot % sampler.world_size();
  return rank >= ranks.first && rank < ranks.first + ranks.count;
}

/// The group of each sample, from the numbers alone.
std::map<std::uint64_t, std::uint64_t> group_of_sample(const Sampler& sampler,
                                                       const Samples& starts) {
  std::map<std::uint64_t, std::uint64_t> groups;
  const auto* const ordered = dynamic_cast<const OrderedSampler*>(&sampler);
  const std::uint64_t n = sampler.spec().num_samples;
  const bool in_order =
      ordered != nullptr ? ordered->order().is_sequential() : !sampler.spec().shuffle;
  for (std::uint64_t sample = 0; sample < n; ++sample) {
    if (in_order) {
      groups[sample] = shard_of(starts, sample);
    } else if (ordered == nullptr) {
      const std::uint64_t block = (n + sampler.world_size() - 1) / sampler.world_size();
      groups[sample] =
          sample / block * n + sample % block / sampler.spec().chunk_size;  // chunks of a rank
    }
  }
  if (in_order || ordered == nullptr) return groups;
  std::vector<EpochOrder::SampleRange> ranges;
  for (std::uint64_t group = 0; group < ordered->order().num_groups(); ++group) {
    ordered->order().list_group(group, ranges);
    for (const auto& [first, last] : ranges) {
      for (std::uint64_t sample = first; sample < last; ++sample) groups[sample] = group;
    }
  }
  return groups;
}

/// What ShardSchedule promises, worked out slot by slot.
std::vector<ShardUse> uses_by_slot(const Sampler& sampler, const Samples& starts,
                                   const RankRange& ranks) {
  const auto groups = group_of_sample(sampler, starts);
  std::map<std::uint64_t, std::set<std::uint64_t>> shards;  // of a group
  for (const auto& [sample, group] : groups) shards[group].insert(shard_of(starts, sample));
  const Samples by_slot = samples_by_slot(sampler);
  const std::uint64_t num_slots = sampler.kept().size();
  const std::uint64_t streams =
      sampler.spec().sampler == SamplerKind::kWids ? sampler.world_size() : sampler.spec().streams;
  struct Piece {
    std::uint64_t begin;
    std::uint64_t end = 0;
    bool is_delivered = false;
  };
  std::map<std::tuple<std::uint64_t, std::uint64_t>, Piece> pieces;
  std::vector<ShardUse> uses;
  for (std::uint64_t slot = 0; slot < by_slot.size(); ++slot) {
    if (by_slot[slot] == ~std::uint64_t{0}) continue;
    if (slot >= num_slots) {
      if (in_range(sampler, ranks, slot)) {
        uses.push_back({shard_of(starts, by_slot[slot]), slot, slot + 1});
      }
      continue;
    }
    const std::uint64_t stream = sampler.kept().slot(slot) % streams;
    Piece& piece =
        pieces.try_emplace({groups.at(by_slot[slot]), stream}, Piece{slot}).first->second;
    piece.end = slot + 1;
    piece.is_delivered = piece.is_delivered || in_range(sampler, ranks, slot);
  }
  for (const auto& [where, piece] : pieces) {
    if (!piece.is_delivered) continue;
    for (const std::uint64_t shard : shards[std::get<0>(where)]) {
      uses.push_back({shard, piece.begin, piece.end});
    }
  }
  std::sort(uses.begin(), uses.end());
  std::vector<ShardUse> merged;
  for (const ShardUse& use : uses) {
    if (!merged.empty() && merged.back().shard == use.shard && merged.back().end >= use.begin) {
      merged.back().end = std::max(merged.back().end, use.end);
    } else {
      merged.push_back(use);
    }
  }
  std::sort(merged.begin(), merged.end(), [](const ShardUse& x, const ShardUse& y) {
    return std::tie(x.begin, x.shard) < std::tie(y.begin, y.shard);
  });
  return merged;
}

void expect_promise(const Sampler& sampler, const Samples& starts, const std::string& what) {
  const std::optional<ShardSchedule> schedule = ShardSchedule::of(sampler, starts);
  ASSERT_TRUE(schedule) << what;
  const std::uint64_t world = sampler.world_size();
  const Samples by_slot = samples_by_slot(sampler);
  EXPECT_EQ(schedule->num_slots(), by_slot.size()) << what;
  std::vector<RankRange> nodes = {{0, world}, {world - 1, 1}};
  if (world > 1) nodes.push_back({world / 2, world - world / 2});
  if (world > 2) nodes.push_back({1, world - 2});
  for (const RankRange& node : nodes) {
    const EpochUses epoch = schedule->uses(node).value();
    ASSERT_EQ(epoch.uses, uses_by_slot(sampler, starts, node))
        << what << ", ranks " << node.first << " + " << node.count;
    for (std::uint64_t slot = 0; slot < by_slot.size(); ++slot) {
      if (by_slot[slot] == ~std::uint64_t{0} || !in_range(sampler, node, slot)) continue;
      const std::uint64_t shard = shard_of(starts, by_slot[slot]);
      ASSERT_TRUE(std::any_of(epoch.uses.begin(), epoch.uses.end(),
                              [&](const ShardUse& use) {
                                return use.shard == shard && use.begin <= slot && slot < use.end;
                              }))
          << what << ", slot " << slot;
    }
  }
}

Samples starts_of(std::uint64_t n, std::uint64_t max_length) {
  return *test::offsets_of(test::some_lengths(n, max_length, n * 7 + max_length));
}

/// Calls `check` for sizes, worlds and streams that go together.
void for_each_world(const std::function<void(std::uint64_t, OrderOptions)>& check) {
  for (const std::uint64_t n : {1, 2, 7, 12, 24, 31, 40}) {
    for (std::uint64_t world = 1; world <= 6; ++world) {
      for (const std::uint64_t streams : {1, 2, 3, 4, 6, 12, 60}) {
        if (streams % world != 0 && world % streams != 0) continue;
        OrderOptions options;
        options.world_size = world;
        options.streams = streams;
        options.epoch = n + world;
        check(n, options);
      }
    }
  }
}

std::string text_of(std::uint64_t n, const OrderOptions& o) {
  return std::string(sampler_name(o.sampler)) + " n " + std::to_string(n) + " world " +
         std::to_string(o.world_size) + " streams " + std::to_string(o.streams) + " chunk " +
         std::to_string(o.chunk_size) + " window " + std::to_string(o.window) + " tail " +
         std::string(tail_name(o.tail)) + (o.shuffle ? "" : " in order");
}

TEST(ShardScheduleTest, ChunkedUsesAreThoseOfEverySlot) {
  for_each_world([](std::uint64_t n, OrderOptions options) {
    for (const std::uint64_t chunk : {1, 3, 5, 8, 100}) {
      for (const std::uint64_t window : {1, 2, 3, 50}) {
        for (const Tail tail : {Tail::kExact, Tail::kDrop, Tail::kPad}) {
          options.chunk_size = chunk;
          options.window = window;
          options.tail = tail;
          const auto sampler = make_sampler(n, options);
          expect_promise(*sampler, starts_of(n, chunk % 2 == 0 ? 3 : 9), text_of(n, options));
        }
      }
    }
  });
}

TEST(ShardScheduleTest, ShardedUsesAreThoseOfEverySlot) {
  for_each_world([](std::uint64_t n, OrderOptions options) {
    options.sampler = SamplerKind::kSharded;
    for (const std::uint64_t window : {1, 2, 5}) {
      for (const Tail tail : {Tail::kExact, Tail::kDrop, Tail::kPad}) {
        options.window = window;
        options.tail = tail;
        const Samples starts = starts_of(n, 6);
        const auto sampler =
            make_sampler(n, options, std::make_shared<const std::vector<std::uint64_t>>(starts));
        expect_promise(*sampler, starts, text_of(n, options));
      }
    }
  });
}

TEST(ShardScheduleTest, UsesInOrderAreThoseOfEverySlot) {
  for_each_world([](std::uint64_t n, OrderOptions options) {
    for (const Tail tail : {Tail::kExact, Tail::kDrop, Tail::kPad}) {
      options.tail = tail;
      options.sampler = SamplerKind::kSequential;
      options.shuffle = true;
      expect_promise(*make_sampler(n, options), starts_of(n, 4), text_of(n, options));
      options.sampler = SamplerKind::kChunked;
      options.shuffle = false;
      expect_promise(*make_sampler(n, options), starts_of(n, 4), text_of(n, options));
    }
  });
}

TEST(ShardScheduleTest, WidsUsesAreThoseOfEverySlot) {
  for (const std::uint64_t n : {1, 7, 24, 31}) {
    for (std::uint64_t world = 1; world <= 8; ++world) {
      for (const std::uint64_t chunk : {1, 4, 100}) {
        for (const bool shuffle : {true, false}) {
          OrderOptions options;
          options.sampler = SamplerKind::kWids;
          options.world_size = world;
          options.chunk_size = chunk;
          options.shuffle = shuffle;
          options.epoch = 2;
          expect_promise(*make_sampler(n, options), starts_of(n, 6), text_of(n, options));
        }
      }
    }
  }
}

TEST(ShardScheduleTest, WhatIsSkippedIsNotNeeded) {
  for_each_world([](std::uint64_t n, OrderOptions options) {
    options.chunk_size = 4;
    options.skip.add_slots(options.epoch, n / 3, n / 3 + 5);
    options.skip.add_slots(options.epoch, n - 1, n);
    options.skip.add_sample(n / 2);
    for (const Tail tail : {Tail::kExact, Tail::kDrop, Tail::kPad}) {
      options.tail = tail;
      expect_promise(*make_sampler(n, options), starts_of(n, 3), text_of(n, options) + " skip");
    }
  });
}

TEST(ShardScheduleTest, OneNodeAndOneStreamNameNoShardThatIsNotNeeded) {
  const Samples starts = starts_of(500, 30);
  OrderOptions options;
  options.chunk_size = 40;
  options.window = 3;
  options.world_size = 4;
  const auto sampler = make_sampler(500, options);
  const Samples by_slot = samples_by_slot(*sampler);
  const EpochUses epoch = ShardSchedule::of(*sampler, starts)->uses({0, 4}).value();
  for (const ShardUse& use : epoch.uses) {
    const auto begin = by_slot.begin() + static_cast<std::ptrdiff_t>(use.begin);
    const auto end = by_slot.begin() + static_cast<std::ptrdiff_t>(use.end);
    EXPECT_TRUE(std::any_of(begin, end, [&](std::uint64_t sample) {
      return shard_of(starts, sample) == use.shard;
    })) << use.shard;
  }
}

TEST(ShardScheduleTest, WhatHasNoKnownFutureGivesNothing) {
  const Samples starts = starts_of(100, 10);
  OrderOptions options;
  options.sampler = SamplerKind::kResampled;
  EXPECT_FALSE(ShardSchedule::of(*make_sampler(100, options), starts));
  options = {};
  options.chunk_size = 1;
  EXPECT_TRUE(ShardSchedule::of(*make_sampler(100, options), starts, 100));
  EXPECT_FALSE(ShardSchedule::of(*make_sampler(100, options), starts, 99));
  options.chunk_size = 10;
  options.world_size = 2;
  options.balance_bytes = true;
  const auto balanced =
      make_sampler(100, options, nullptr, [](std::uint64_t sample) { return sample % 13; });
  expect_promise(*make_sampler(100, {.world_size = 2, .chunk_size = 10}), starts, "not balanced");
  const auto schedule = ShardSchedule::of(*balanced, starts);
  ASSERT_TRUE(schedule);
  EXPECT_TRUE(schedule->uses({0, 2}));
  EXPECT_FALSE(schedule->uses({0, 1}));
}

TEST(ShardScheduleTest, WrongShardsAndRanksAreRefused) {
  const auto sampler = make_sampler(100, {.world_size = 4});
  for (const Samples& starts :
       {Samples{}, Samples{0, 99}, Samples{1, 100}, Samples{0, 60, 50, 100}}) {
    try {
      ShardSchedule::of(*sampler, starts);
      ADD_FAILURE() << starts.size();
    } catch (const InvalidArgument& e) {
      EXPECT_THAT(e.what(), HasSubstr("these are not the shards of 100 samples"));
      EXPECT_THAT(e.what(), HasSubstr("the first sample of each shard, then the number"));
    }
  }
  const auto schedule = ShardSchedule::of(*sampler, Samples{0, 50, 100});
  for (const RankRange& ranks :
       {RankRange{4, 1}, RankRange{0, 5}, RankRange{3, 2}, RankRange{0, 0}}) {
    try {
      static_cast<void>(schedule->uses(ranks));
      ADD_FAILURE() << ranks.first;
    } catch (const InvalidArgument& e) {
      EXPECT_THAT(e.what(), HasSubstr("there are 4 ranks, from 0"));
    }
  }
}

}  // namespace
}  // namespace shardwise
