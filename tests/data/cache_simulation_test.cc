#include "storage/eviction.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "data/cache_simulation.h"
#include "data/prefetch_schedule.h"
#include "order/shard_use.h"
#include "shardwise/base/error.h"
#include "support/support.h"

namespace shardwise {
namespace {

using testing::HasSubstr;
using Numbers = std::vector<std::uint64_t>;

/// Random uses: epochs of `num_slots` slots over `num_shards` shards. Each use is a random range of
/// slots.
std::vector<EpochSchedule> random_epochs(std::mt19937_64& random, std::size_t num_epochs,
                                         std::uint64_t num_slots, std::uint64_t num_shards,
                                         unsigned percent) {
  std::vector<EpochSchedule> epochs(num_epochs);
  for (EpochSchedule& epoch : epochs) {
    epoch.num_slots = num_slots;
    for (std::uint64_t shard = 0; shard < num_shards; ++shard) {
      for (std::uint64_t slot = random() % 4; slot < num_slots;) {
        if (random() % 100 >= percent) {
          ++slot;
          continue;
        }
        const std::uint64_t end = std::min(num_slots, slot + 1 + random() % 3);
        epoch.uses.push_back({shard, slot, end});
        slot = end + 1;
      }
    }
    std::sort(epoch.uses.begin(), epoch.uses.end(), [](const UseInterval& x, const UseInterval& y) {
      return std::pair(x.begin, x.shard) < std::pair(y.begin, y.shard);
    });
  }
  return epochs;
}

/// Returns the same uses with slots numbered across epochs.
std::vector<UseInterval> joined(const std::vector<EpochSchedule>& epochs) {
  std::vector<UseInterval> uses;
  std::uint64_t first = 0;
  for (const EpochSchedule& epoch : epochs) {
    for (const UseInterval& use : epoch.uses) {
      uses.push_back({use.shard, first + use.begin, first + use.end});
    }
    first += epoch.num_slots;
  }
  return uses;
}

bool is_used(const std::vector<UseInterval>& uses, std::uint64_t shard, std::uint64_t slot) {
  return std::any_of(uses.begin(), uses.end(), [&](const UseInterval& use) {
    return use.shard == shard && use.begin <= slot && slot < use.end;
  });
}

std::uint64_t most_in_use(const std::vector<UseInterval>& uses, const Numbers& sizes) {
  std::uint64_t most = 0;
  for (const UseInterval& now : uses) {
    std::uint64_t bytes = 0;
    for (std::uint64_t shard = 0; shard < sizes.size(); ++shard) {
      if (is_used(uses, shard, now.begin)) bytes += sizes[shard];
    }
    most = std::max(most, bytes);
  }
  return most;
}

/// A simple implementation of simulate_cache(): slot by slot, with linear searches.
std::vector<CacheCounts> simulate_plainly(const std::vector<EpochSchedule>& epochs,
                                          const Numbers& sizes, std::uint64_t budget,
                                          Replacement replacement) {
  const std::vector<UseInterval> uses = joined(epochs);
  std::map<std::uint64_t, std::uint64_t> cached;  // shard -> begin of its latest use
  const auto cached_bytes = [&] {
    std::uint64_t bytes = 0;
    for (const auto& [shard, last] : cached) bytes += sizes[shard];
    return bytes;
  };
  const auto next = [&](std::uint64_t shard, std::uint64_t slot) -> std::uint64_t {
    for (const UseInterval& use : uses) {
      if (use.shard == shard && use.begin >= slot) return use.begin;
    }
    return ~std::uint64_t{0};
  };
  std::vector<CacheCounts> all;
  std::uint64_t first = 0;
  for (const EpochSchedule& epoch : epochs) {
    CacheCounts counts;
    counts.peak_bytes = cached_bytes();
    for (std::uint64_t slot = first; slot < first + epoch.num_slots; ++slot) {
      Numbers missing;
      for (std::uint64_t shard = 0; shard < sizes.size(); ++shard) {
        const bool begins = std::any_of(uses.begin(), uses.end(), [&](const UseInterval& use) {
          return use.shard == shard && use.begin == slot;
        });
        if (!begins) continue;
        ++counts.uses;
        if (cached.contains(shard)) {
          cached[shard] = slot;
        } else {
          missing.push_back(shard);
        }
      }
      for (const std::uint64_t shard : missing) {
        ++counts.fetches;
        counts.bytes_fetched += sizes[shard];
        std::uint64_t pinned = 0;
        for (const auto& [other, last] : cached) {
          if (is_used(uses, other, slot)) pinned += sizes[other];
        }
        if (pinned + sizes[shard] > budget) {
          ++counts.bypasses;
          continue;
        }
        while (cached_bytes() + sizes[shard] > budget) {
          std::optional<std::uint64_t> victim;
          const auto rank_of = [&](std::uint64_t s) {
            const std::uint64_t when =
                replacement == Replacement::kLru ? cached[s] : ~next(s, slot);
            return std::tuple(when, ~sizes[s], s);
          };
          for (const auto& [other, last] : cached) {
            if (is_used(uses, other, slot)) continue;
            if (!victim || rank_of(other) < rank_of(*victim)) victim = other;
          }
          cached.erase(victim.value());
          ++counts.evictions;
        }
        cached[shard] = slot;
        counts.peak_bytes = std::max(counts.peak_bytes, cached_bytes());
      }
    }
    all.push_back(counts);
    first += epoch.num_slots;
  }
  return all;
}

/// Returns the minimum number of fetches over all choices of victims, for shards of one byte.
std::uint64_t fewest_fetches(const std::vector<UseInterval>& uses, std::size_t i,
                             std::set<std::uint64_t> cached, std::uint64_t budget) {
  if (i == uses.size()) return 0;
  const std::uint64_t slot = uses[i].begin;
  if (cached.contains(uses[i].shard)) return fewest_fetches(uses, i + 1, cached, budget);
  std::uint64_t fewest = ~std::uint64_t{0};
  if (cached.size() < budget) {
    cached.insert(uses[i].shard);
    return 1 + fewest_fetches(uses, i + 1, cached, budget);
  }
  for (const std::uint64_t victim : cached) {
    if (is_used(uses, victim, slot)) continue;
    std::set<std::uint64_t> left = cached;
    left.erase(victim);
    left.insert(uses[i].shard);
    fewest = std::min(fewest, 1 + fewest_fetches(uses, i + 1, std::move(left), budget));
  }
  return fewest;
}

CacheCounts total(const std::vector<CacheCounts>& epochs) {
  CacheCounts sum;
  for (const CacheCounts& counts : epochs) sum += counts;
  return sum;
}

Numbers random_sizes(std::mt19937_64& random, std::size_t count) {
  Numbers sizes(count);
  for (std::uint64_t& size : sizes) size = random() % 5;
  return sizes;
}

TEST(NextUsesTest, AgreesWithASearchOfAllUses) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    const auto epochs = random_epochs(random, 1 + round % 3, 20, 6, 15);
    const auto uses = joined(epochs);
    const NextUseIndex next_uses(6, epochs);
    for (std::uint64_t shard = 0; shard < 6; ++shard) {
      for (std::uint64_t from = 0; from < 70; ++from) {
        std::optional<std::uint64_t> expected;
        for (std::uint64_t slot = from; slot < 60 && !expected; ++slot) {
          if (is_used(uses, shard, slot)) expected = slot;
        }
        ASSERT_EQ(next_uses.next(shard, from), expected) << shard << " from " << from;
        std::optional<std::uint64_t> end;
        for (const UseInterval& use : uses) {
          if (use.shard == shard && use.begin <= from && from < use.end) end = use.end;
        }
        ASSERT_EQ(next_uses.in_use_until(shard, from), end) << shard << " at " << from;
      }
    }
  }
}

TEST(NextUsesTest, UsesThatCannotBeMeantAreRefused) {
  const auto text_for = [](EpochSchedule epoch) -> std::string {
    try {
      const NextUseIndex uses(2, {&epoch, 1});
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(text_for({10, {{2, 0, 1}}}), HasSubstr("[0, 2)"));
  EXPECT_THAT(text_for({10, {{1, 3, 3}}}), HasSubstr("shard 1 in slots 3 to 3"));
  EXPECT_THAT(text_for({10, {{1, 3, 11}}}),
              AllOf(HasSubstr("shard 1 in slots 3 to 11"), HasSubstr("below 10")));
  EXPECT_THAT(text_for({10, {{1, 3, 4}, {0, 2, 4}}}), HasSubstr("by begin, then by shard"));
  EXPECT_THAT(text_for({10, {{1, 3, 6}, {1, 5, 7}}}), HasSubstr("overlap"));
  EXPECT_EQ(text_for({10, {{0, 3, 6}, {1, 3, 7}, {0, 6, 7}}}), "accepted");
}

TEST(SimulateCacheTest, TiesTakeTheLargerShardThenTheLowerNumber) {
  const auto at = [](std::uint64_t shard, std::uint64_t slot) {
    return NextUse{.kind = NextUse::Kind::kAt, .position = slot, .shard = shard};
  };
  const EvictionCandidate small{.size_bytes = 10, .last_use = 5, .next = at(1, 20)};
  EvictionCandidate large{.size_bytes = 11, .last_use = 5, .next = at(2, 20)};
  for (const Replacement replacement : {Replacement::kLru, Replacement::kNextUse}) {
    EXPECT_TRUE(leaves_before(large, small, replacement));
    EXPECT_FALSE(leaves_before(small, large, replacement));
  }
  large.size_bytes = 10;
  EXPECT_TRUE(leaves_before(small, large, Replacement::kNextUse));
  EXPECT_FALSE(leaves_before(large, small, Replacement::kNextUse));
  large.next = {.kind = NextUse::Kind::kNever, .shard = 2};
  EXPECT_TRUE(leaves_before(large, small, Replacement::kNextUse)) << "never again";
  large.next = at(2, 21);
  EXPECT_TRUE(leaves_before(large, small, Replacement::kNextUse)) << "later";
  large.last_use = 4;
  EXPECT_TRUE(leaves_before(large, small, Replacement::kLru)) << "longer ago";
}

TEST(SimulateCacheTest, AgreesWithAPlainModelSlotBySlot) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 400; ++round) {
    const auto epochs = random_epochs(random, 1 + round % 3, 16, 7, 10 + round % 30);
    const Numbers sizes = round % 2 == 0 ? Numbers(7, 3) : random_sizes(random, 7);
    const std::uint64_t budget = random() % 22;
    for (const Replacement replacement : {Replacement::kLru, Replacement::kNextUse}) {
      const auto counts = simulate_cache(epochs, sizes, budget, replacement);
      ASSERT_EQ(counts, simulate_plainly(epochs, sizes, budget, replacement))
          << "round " << round << (replacement == Replacement::kLru ? ", lru" : ", next use");
      ASSERT_LE(total(counts).peak_bytes, budget);
    }
  }
}

TEST(SimulateCacheTest, NextUseIsTheOptimumForShardsOfOneSize) {
  std::mt19937_64 random(3);
  int compared = 0;
  for (int round = 0; round < 300; ++round) {
    const auto epochs = random_epochs(random, 2, 6, 5, 25);
    const auto uses = joined(epochs);
    const Numbers sizes(5, 1);
    const std::uint64_t budget = 2 + random() % 3;
    if (most_in_use(uses, sizes) > budget) continue;
    ++compared;
    const auto next_use = total(simulate_cache(epochs, sizes, budget, Replacement::kNextUse));
    const auto lru = total(simulate_cache(epochs, sizes, budget, Replacement::kLru));
    ASSERT_EQ(next_use.bypasses, 0u);
    ASSERT_EQ(next_use.fetches, fewest_fetches(uses, 0, {}, budget)) << round;
    ASSERT_LE(next_use.bytes_fetched, lru.bytes_fetched);
  }
  EXPECT_GT(compared, 30);
}

TEST(SmallestBudgetTest, FromItOnEachShardIsFetchedOnceAndOneByteLessIsTooLittle) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 300; ++round) {
    const auto epochs = random_epochs(random, 1, 20, 8, 15);
    const Numbers sizes = round % 2 == 0 ? Numbers(8, 7) : random_sizes(random, 8);
    std::set<std::uint64_t> distinct;
    for (const UseInterval& use : epochs[0].uses) distinct.insert(use.shard);
    const std::uint64_t budget = smallest_budget_without_refetch(epochs, sizes);
    const auto enough = simulate_cache(epochs, sizes, budget, Replacement::kNextUse).front();
    ASSERT_EQ(enough.fetches, distinct.size());
    ASSERT_EQ(enough.bypasses, 0u);
    if (budget == 0) continue;
    const auto less = simulate_cache(epochs, sizes, budget - 1, Replacement::kNextUse).front();
    ASSERT_TRUE(less.fetches > distinct.size() || less.bypasses > 0) << round;
  }
}

TEST(SmallestBudgetTest, TheLargestOfTheEpochsLastsForEachEpoch) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    const auto epochs = random_epochs(random, 3, 15, 8, 15);
    const Numbers sizes = random_sizes(random, 8);
    std::uint64_t budget = 0;
    for (const EpochSchedule& epoch : epochs) {
      budget = std::max(budget, smallest_budget_without_refetch({&epoch, 1}, sizes));
    }
    const auto counts = simulate_cache(epochs, sizes, budget, Replacement::kNextUse);
    for (std::size_t e = 0; e < epochs.size(); ++e) {
      std::set<std::uint64_t> distinct;
      for (const UseInterval& use : epochs[e].uses) distinct.insert(use.shard);
      ASSERT_LE(counts[e].fetches, distinct.size());
    }
    const std::uint64_t all = smallest_budget_without_refetch(epochs, sizes);
    ASSERT_GE(all, budget);
    std::set<std::uint64_t> distinct;
    for (const UseInterval& use : joined(epochs)) distinct.insert(use.shard);
    ASSERT_EQ(total(simulate_cache(epochs, sizes, all, Replacement::kNextUse)).fetches,
              distinct.size());
  }
}

TEST(SmallestBudgetTest, NothingUsedNeedsNothing) {
  EXPECT_EQ(smallest_budget_without_refetch({}, {}), 0u);
  const std::vector<EpochSchedule> epochs = {{5, {}}};
  EXPECT_EQ(smallest_budget_without_refetch(epochs, Numbers{1, 2}), 0u);
  EXPECT_EQ(simulate_cache(epochs, Numbers{1, 2}, 0, Replacement::kNextUse),
            (std::vector<CacheCounts>{{}}));
}

TEST(PrefetchScheduleTest, SaysWhatAPlainListSaysWhereverTheReaderSkipsTo) {
  using detail::PrefetchSchedule;
  std::mt19937_64 random(test::random_seed());
  for (int round = 0; round < test::repeats(200, 5000); ++round) {
    const auto uses = joined(random_epochs(random, 2, 1 + random() % 40, 1 + random() % 6,
                                           static_cast<unsigned>(20 + random() % 60)));
    const bool is_unlimited = round % 10 == 0;
    const std::size_t max_ahead = is_unlimited ? uses.size() : random() % 5;
    PrefetchSchedule schedule(uses, is_unlimited ? ~std::uint64_t{0} : max_ahead);
    const auto any_end = [&](std::uint64_t after, std::uint64_t slot) {
      return std::any_of(uses.begin(), uses.end(), [&](const UseInterval& use) {
        return after < use.end && use.end <= slot;
      });
    };
    std::size_t decided = 0;
    for (std::uint64_t slot = random() % 3, before = 0; slot < 90; slot += 1 + random() % 4) {
      Numbers ended;
      std::size_t begun = 0;
      std::uint64_t change = PrefetchSchedule::kNever;
      for (const UseInterval& use : uses) {
        if (before < use.end && use.end <= slot) ended.push_back(use.shard);
        if (use.begin <= slot) ++begun;
        for (const std::uint64_t at : {use.begin, use.end}) {
          if (at > slot) change = std::min(change, at);
        }
      }
      ASSERT_THAT(schedule.reach(slot), testing::UnorderedElementsAreArray(ended));
      ASSERT_EQ(schedule.next_change(), change);
      const std::uint64_t after = random() % (slot + 1);
      ASSERT_EQ(schedule.has_end(after, slot), any_end(after, slot));
      const std::size_t last = std::min(uses.size(), begun + max_ahead);
      for (std::uint64_t shard = 0; shard < 6; ++shard) {
        bool is_ahead = false;
        for (std::size_t i = begun; i < last; ++i) is_ahead |= uses[i].shard == shard;
        ASSERT_EQ(schedule.is_ahead(shard), is_ahead);
      }
      for (auto tries = random() % 4; tries > 0 && decided < last; --tries) {
        ASSERT_NE(schedule.next(), nullptr);
        ASSERT_EQ(*schedule.next(), uses[decided++]);
        schedule.decide();
      }
      ASSERT_EQ(schedule.next() != nullptr, decided < last);
      before = slot;
    }
  }
}

}  // namespace
}  // namespace shardwise
