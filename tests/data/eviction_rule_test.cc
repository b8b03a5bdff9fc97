// Compares a cache's evictions with the planned ones. Both are decided by the same rule.
#include <algorithm>
#include <map>
#include <random>

#include "data/cache_simulation.h"
#include "order/shard_use.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_request.h"
#include "storage/eviction.h"
#include "support/support.h"

namespace shardwise {
namespace {

using Sizes = std::vector<std::uint64_t>;

/// Returns epochs in which interleaved streams use each shard once or twice.
std::vector<EpochSchedule> random_orders(std::mt19937_64& random, std::uint64_t num_shards) {
  std::vector<EpochSchedule> epochs(1 + random() % 3);
  for (EpochSchedule& epoch : epochs) {
    epoch.num_slots = 40;
    for (std::uint64_t shard = 0; shard < num_shards; ++shard) {
      std::uint64_t slot = random() % 20;
      for (std::uint64_t use = 0; use < 1 + random() % 2; ++use) {
        const std::uint64_t end = std::min(epoch.num_slots, slot + 1 + random() % 4);
        epoch.uses.push_back({shard, slot, end});
        slot = end + random() % 10;
        if (slot >= epoch.num_slots) break;
      }
    }
    std::sort(epoch.uses.begin(), epoch.uses.end(), [](const UseInterval& a, const UseInterval& b) {
      return std::pair(a.begin, a.shard) < std::pair(b.begin, b.shard);
    });
  }
  return epochs;
}

/// Reads the epochs through a cache, use by use, in the order of the plan.
class Reader {
 public:
  Reader(ShardCache& cache, const test::TempDir& dir, const Sizes& sizes) : cache_(cache) {
    for (std::uint64_t shard = 0; shard < sizes.size(); ++shard) {
      const std::string path = dir / ("source" + std::to_string(shard));
      test::write_file(path, std::string(sizes[shard], static_cast<char>('a' + shard % 26)));
      requests_.push_back({.source = {.url = path, .size_bytes = sizes[shard]}});
      numbers_[CacheAccess::name_of(requests_.back())] = shard;
    }
  }

  void read(const std::vector<EpochSchedule>& epochs) {
    const NextUseIndex next_uses(requests_.size(), epochs);
    std::uint64_t first_slot = 0;
    for (const EpochSchedule& epoch : epochs) {
      for (std::size_t i = 0; i < epoch.uses.size();) {
        const std::uint64_t now = first_slot + epoch.uses[i].begin;
        std::erase_if(held_, [&](const auto& shard) { return shard.first <= now; });
        std::vector<const UseInterval*> missing;
        for (; i < epoch.uses.size() && first_slot + epoch.uses[i].begin == now; ++i) {
          const UseInterval& use = epoch.uses[i];
          if (is_cached(use.shard)) {
            get(use, first_slot, next_uses);
          } else {
            missing.push_back(&use);
          }
        }
        for (const UseInterval* const use : missing) get(*use, first_slot, next_uses);
      }
      first_slot += epoch.num_slots;
    }
    held_.clear();
  }

 private:
  bool is_cached(std::uint64_t shard) const {
    const auto entries = cache_.entries();
    return std::any_of(entries.begin(), entries.end(), [&](const ShardCache::Entry& entry) {
      return numbers_.at(entry.name) == shard;
    });
  }

  void get(const UseInterval& use, std::uint64_t first_slot, const NextUseIndex& next_uses) {
    const std::uint64_t slot = first_slot + use.begin;
    CachedShard shard =
        CacheAccess::get(cache_, requests_[use.shard], [&](const std::string& name) -> NextUse {
          const std::uint64_t number = numbers_.at(name);
          if (next_uses.in_use_until(number, slot)) return {.kind = NextUse::Kind::kInUse};
          const auto next = next_uses.next(number, slot);
          return {.kind = next ? NextUse::Kind::kAt : NextUse::Kind::kNever,
                  .position = next.value_or(0),
                  .shard = number};
        });
    held_.emplace(first_slot + use.end, std::move(shard));
  }

  ShardCache& cache_;
  std::vector<CacheRequest> requests_;
  std::map<std::string, std::uint64_t> numbers_;
  // Pinned shards, by the slot at which their use ends.
  std::multimap<std::uint64_t, CachedShard> held_;
};

TEST(EvictionRuleTest, TheCacheDoesWhatThePlanSaysInRandomConfigurations) {
  const std::uint64_t seed = test::random_seed();
  std::mt19937_64 random(seed);
  int compared = 0;
  for (int round = 0; round < test::repeats(40, 1000); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const test::TempDir dir;
    Sizes sizes(3 + random() % 10);
    const bool are_equal = random() % 2 == 0;
    for (std::uint64_t& size : sizes) size = are_equal ? 3000 : 1 + random() % 6000;
    const std::uint64_t budget = 3000 + random() % (3000 * sizes.size());
    const auto epochs = random_orders(random, sizes.size());
    CacheCounts planned;
    for (const CacheCounts& epoch : simulate_cache(epochs, sizes, budget, Replacement::kNextUse)) {
      planned += epoch;
    }
    // Skip this case: in a real cache, a shard that bypasses the budget needs disk space while it
    // is read.
    if (planned.bypasses > 0) continue;
    ++compared;
    const auto cache = ShardCache::open({.directory = dir / "cache", .budget_bytes = budget});
    Reader(*cache, dir, sizes).read(epochs);
    const ShardCache::Stats done = cache->stats();
    ASSERT_EQ(done.fetched, planned.fetches);
    ASSERT_EQ(done.evicted, planned.evictions);
    ASSERT_EQ(done.bypassed, 0u);
    ASSERT_EQ(done.fetched_bytes, planned.bytes_fetched);
    ASSERT_LE(cache->used_bytes(), budget);
  }
  EXPECT_GT(compared, 0);
}

TEST(EvictionRuleTest, ManySmallShardsLeaveTogetherDownToTheLowWaterMark) {
  std::vector<EvictionCandidate> all(1024);
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    all[i] = {.size_bytes = 1, .last_use = static_cast<std::int64_t>(i)};
  }
  const EvictionNeed need{.size_bytes = 1, .budget_bytes = 1024, .used_bytes = 1024};
  const auto yes = [](const EvictionCandidate&) { return true; };
  EXPECT_EQ(choose_victims(all, need, yes).victims.size(), 1 + low_water_bytes(1024));
  // If room is needed, pinned shards are skipped. Eviction down to the low-water mark stops at a
  // pinned shard.
  const auto held = [](const EvictionCandidate& c) { return c.last_use != 0 && c.last_use != 3; };
  EXPECT_THAT(choose_victims(all, need, held).victims, testing::ElementsAre(1, 2));
  // Make each shard larger than the distance to the low-water mark.
  for (EvictionCandidate& candidate : all) candidate.size_bytes = 5;
  EXPECT_EQ(choose_victims(all, need, yes).victims.size(), 1u);
}

TEST(EvictionRuleTest, WhatUsersOfUnknownOrderUsedLastIsSparedUpToTheirShare) {
  const NextUse known{.kind = NextUse::Kind::kAt, .position = 9};
  std::vector<EvictionCandidate> all{{.size_bytes = 2, .last_use = 1},
                                     {.size_bytes = 2, .last_use = 5},
                                     {.size_bytes = 2, .last_use = 6},
                                     {.size_bytes = 2, .last_use = 7},
                                     {.size_bytes = 2, .last_use = 8, .next = known}};
  std::vector<EvictionCandidate*> candidates;
  for (EvictionCandidate& candidate : all) candidates.push_back(&candidate);
  detail::spare_share(candidates, 5, 2);
  std::sort(all.begin(), all.end(), [](const auto& x, const auto& y) {
    return leaves_before(x, y, Replacement::kNextUse);
  });
  std::vector<std::int64_t> order;
  for (const EvictionCandidate& candidate : all) order.push_back(candidate.last_use);
  EXPECT_THAT(order, testing::ElementsAre(1, 5, 8, 6, 7)) << "2 shards of 2 bytes fit into 5";
  for (EvictionCandidate& candidate : all) candidate.is_spared = false;
  detail::spare_share(candidates, 100, 6);
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const auto& c) { return c.is_spared; }), 2)
      << "what was used before they came is nobody's";
}

TEST(EvictionRuleTest, SaysNotNowAndNone) {
  const auto yes = [](const EvictionCandidate&) { return true; };
  const auto no = [](const EvictionCandidate&) { return false; };
  const auto at = [](std::uint64_t position, bool may_go_now = true) {
    return NextUse{.kind = NextUse::Kind::kAt, .position = position, .may_go_now = may_go_now};
  };
  EvictionNeed need{.size_bytes = 5, .budget_bytes = 10, .used_bytes = 10};
  std::vector<EvictionCandidate> all{{.size_bytes = 5, .next = at(9, false)},
                                     {.size_bytes = 5, .next = at(7)}};
  EXPECT_EQ(choose_victims(all, need, yes).room, Room::kMade) << "it cannot wait";
  EXPECT_EQ(choose_victims(all, need, no).room, Room::kNone);
  need.urgency = Urgency::kPolite;
  EXPECT_EQ(choose_victims(all, need, yes).room, Room::kNotNow) << "needed still";
  all[0].next.may_go_now = true;
  EXPECT_EQ(choose_victims(all, need, no).room, Room::kNotNow) << "held";
  need.urgency = Urgency::kOverrun;
  const auto first_held = [](const EvictionCandidate& c) { return c.next.position != 9; };
  EXPECT_EQ(choose_victims(all, need, first_held).room, Room::kMade) << "nobody waits for it";
  EXPECT_THAT(choose_victims(all, need, first_held).victims, testing::IsEmpty());
  need.is_disk_full = true;
  EXPECT_EQ(choose_victims(all, need, first_held).room, Room::kNotNow) << "its bytes are there";
  need.is_disk_full = false;
  all[0].next.may_go_now = false;
  EXPECT_EQ(choose_victims(all, need, yes).room, Room::kNotNow) << "needed still, and not in use";
  EXPECT_EQ(choose_victims(all, need, yes, [](const auto&) { return true; }).room, Room::kMade)
      << "in use, as by a batch";
  all[0].next.may_go_now = true;
  all[0].is_stuck = true;
  EXPECT_THAT(choose_victims(all, need, first_held).victims, testing::ElementsAre(1));
  need.urgency = Urgency::kPolite;
  const auto second = [](const EvictionCandidate& c) { return !c.is_stuck; };
  EXPECT_THAT(choose_victims(all, need, second).victims, testing::ElementsAre(1))
      << "held for long";
  all[0].is_stuck = false;
  need.urgency = Urgency::kAhead;
  need.needed_at = 9;
  EXPECT_EQ(choose_victims(all, need, yes).room, Room::kNotNow) << "needed before";
  need.needed_at = 8;
  EXPECT_EQ(choose_victims(all, need, yes).room, Room::kMade);
  need.size_bytes = 11;
  EXPECT_EQ(choose_victims(all, need, yes).room, Room::kNone) << "larger than the cache";
}

TEST(EvictionRuleTest, AWaitingCallerGoesOnFromStageToStage) {
  using std::chrono::milliseconds;
  const auto stage = [](int waited, int quiet, int timeout = 200) {
    return next_stage(milliseconds(waited), milliseconds(quiet), milliseconds(timeout));
  };
  EXPECT_EQ(stage(0, 0), Urgency::kPolite);
  EXPECT_EQ(stage(4, 4), Urgency::kPolite);
  EXPECT_EQ(stage(5, 5), Urgency::kOverrun);
  EXPECT_EQ(stage(199, 199), Urgency::kOverrun);
  EXPECT_EQ(stage(1000, 199), Urgency::kOverrun) << "a fetch of this process ran meanwhile";
  EXPECT_EQ(stage(1000, 200), Urgency::kOverflow);
  EXPECT_EQ(stage(400, 0, 100'000), Urgency::kOverrun) << "5 ms, however long the timeout is";
  EXPECT_EQ(stage(2, 2, 80), Urgency::kOverrun) << "a 40th of a short timeout";
  EXPECT_EQ(stage(0, 0, 0), Urgency::kOverflow) << "without a timeout nobody waits";
}

}  // namespace
}  // namespace shardwise
