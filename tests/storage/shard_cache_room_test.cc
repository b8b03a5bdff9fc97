// How a shard cache makes room: which shards it evicts, what it waits for, and which shards are
// outside the budget.
#include <fcntl.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <thread>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/hasher.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_directory.h"
#include "storage/cache_ledger.h"
#include "storage/cache_locks.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/served_shards.h"
#include "storage/test_http_server.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::size_t kShardBytes = 100'000;

class ShardCacheRoomTest : public test::ServedShardsTest {
 protected:
  ShardCacheRoomTest() : ServedShardsTest(kShardBytes) {}

  /// Returns the bytes that the cache's ledger counts; nullopt if the ledger is marked as doubtful.
  std::optional<std::uint64_t> counted_bytes() const {
    const auto of = directory();
    return detail::CacheLedger(of).read().used_bytes;
  }
  void cast_doubt() const {
    const auto of = directory();
    detail::CacheLedger(of).doubt();
  }

 private:
  detail::CacheDirectory directory() const {
    return detail::CacheDirectory(cache_path(), false, detail::CacheDirectory::Sharing::kOwn);
  }
};

TEST_F(ShardCacheRoomTest, WhatALargerBudgetLeftGoesWithTheFirstShardThatIsAskedFor) {
  {
    const auto cache = ShardCache::open(options());
    for (const int i : {1, 2, 3, 4, 5, 0}) read(*cache, i);
  }
  const auto cache = ShardCache::open(options(3));
  EXPECT_EQ(cache->used_bytes(), 6 * kShardBytes) << "nobody used it";
  const std::map<std::string, NextUse> future{
      {CacheAccess::name_of(request(1)), {.kind = NextUse::Kind::kInUse}},
      {CacheAccess::name_of(request(2)), {.kind = NextUse::Kind::kAt, .position = 70, .shard = 2}},
      {CacheAccess::name_of(request(3)), {.kind = NextUse::Kind::kAt, .position = 50, .shard = 3}},
      {CacheAccess::name_of(request(4)), {.kind = NextUse::Kind::kNever, .shard = 4}},
  };
  const auto next_use = [&](const std::string& name) {
    const auto found = future.find(name);
    return found == future.end() ? NextUse{} : found->second;
  };
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, request(0), next_use).path()), body(0));
  std::vector<std::string> left;
  for (const ShardCache::Entry& entry : cache->entries()) left.push_back(entry.name);
  EXPECT_THAT(left, testing::UnorderedElementsAre(CacheAccess::name_of(request(0)),
                                                  CacheAccess::name_of(request(1)),
                                                  CacheAccess::name_of(request(3))))
      << "unknown, never, and farthest went";
  EXPECT_EQ(cache->stats().evicted, 3u);
  EXPECT_EQ(cache->stats().fetched, 0u);
}

TEST_F(ShardCacheRoomTest, WhatALargerBudgetLeftGoesThoughAllOfItIsNeededButNotFromUnderItsUser) {
  const auto all_needed = [](const std::string&) { return NextUse{.kind = NextUse::Kind::kInUse}; };
  const auto large = ShardCache::open(options());
  for (int i = 0; i < 7; ++i) read(*large, i);
  std::vector<CachedShard> used;
  for (const int i : {0, 1}) used.push_back(CacheAccess::get(*large, request(i)));

  const auto cache = ShardCache::open(options(3));
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, request(7), all_needed).path()), body(7));
  EXPECT_EQ(cache->used_bytes(), 3 * kShardBytes);
  for (const CachedShard& shard : used) EXPECT_TRUE(std::filesystem::exists(shard.path()));
  EXPECT_EQ(cache->stats().evicted, 4u);
  EXPECT_EQ(test::read_file(CacheAccess::get(*cache, request(6), all_needed).path()), body(6))
      << "the last one that was used stayed";
  EXPECT_EQ(cache->stats().fetched, 1u);

  const auto small = ShardCache::open(options(1));
  CacheAccess::get(*small, request(0), all_needed);
  EXPECT_EQ(small->used_bytes(), 2 * kShardBytes) << "both are in use";
  used.clear();
  std::optional<ShardFetch> fetch;
  EXPECT_EQ(CacheAccess::begin_ahead(*small, request(2), 1, all_needed, fetch), Ahead::kNotNow);
  EXPECT_EQ(small->used_bytes(), kShardBytes) << "now they are not";
}

TEST_F(ShardCacheRoomTest, EvictsTheLeastRecentlyUsedWithinItsBudget) {
  const auto cache = ShardCache::open(options(3));
  for (const int i : {0, 1, 2, 0, 3}) read(*cache, i);  // shard 1 is evicted
  EXPECT_LE(cache->used_bytes(), 3 * kShardBytes);
  for (const int i : {0, 2, 3}) read(*cache, i);
  EXPECT_EQ(cache->stats().fetched, 4u);
  read(*cache, 1);
  EXPECT_EQ(cache->stats().fetched, 5u);
  EXPECT_EQ(cache->stats().evicted, 2u);
  EXPECT_EQ(cache->stats().evicted_bytes, 2 * kShardBytes);
}

TEST_F(ShardCacheRoomTest, WhatIsInUseStays) {
  const auto cache = ShardCache::open(options(2));
  const CachedShard first = CacheAccess::get(*cache, request(0));
  {
    const CachedShard again =
        CacheAccess::get(*cache, request(0));  // another pin makes no difference
  }
  for (const int i : {1, 2, 3, 4}) read(*cache, i);
  EXPECT_EQ(test::read_file(first.path()), body(0));
  EXPECT_LE(cache->used_bytes(), 2 * kShardBytes);
  EXPECT_EQ(cache->stats().bypassed, 0u);
}

// Fault under test: tests/faults.md 16.
TEST_F(ShardCacheRoomTest, WithoutRoomAShardIsFetchedBesideTheCache) {
  const auto cache = ShardCache::open(options(2));
  const CachedShard a = CacheAccess::get(*cache, request(0));
  const CachedShard b = CacheAccess::get(*cache, request(1));
  {
    const CachedShard c = CacheAccess::get(*cache, request(2));
    EXPECT_EQ(test::read_file(c.path()), body(2));
    EXPECT_EQ(test::read_file(a.path()), body(0));
    EXPECT_LE(cache->used_bytes(), 3 * kShardBytes);
  }
  EXPECT_EQ(cache->used_bytes(), 2 * kShardBytes) << "it is gone with its last user";
  EXPECT_EQ(cache->stats().bypassed, 1u);
}

// Fault under test: tests/faults.md 16.
TEST_F(ShardCacheRoomTest, OfWhatCanBeReadPastTheCacheOneShardLiesBesideIt) {
  const auto cache = ShardCache::open(options(1));
  const auto get = [&](int i) {
    CacheRequest wanted = request(i);
    wanted.may_read_uncached = [] { return true; };
    return CacheAccess::get(*cache, wanted);
  };
  const CachedShard inside = get(0);
  std::optional<CachedShard> beside = get(1);
  EXPECT_TRUE(beside->is_overflow());
  EXPECT_FALSE(get(2).is_pinned()) << "its samples are to be read from the source";
  EXPECT_EQ(server_.gets(path(2)), 0);
  EXPECT_TRUE(CacheAccess::get(*cache, request(3)).is_overflow())
      << "it can be had in no other way";
  EXPECT_FALSE(get(2).is_pinned());
  EXPECT_EQ(cache->used_bytes(), 2 * kShardBytes);
  EXPECT_EQ(cache->stats().bypassed, 4U);
  beside.reset();
  EXPECT_TRUE(get(2).is_overflow()) << "there is a place again";
}

// Fault under test: tests/faults.md 6.
TEST_F(ShardCacheRoomTest, ABudgetBelowOneShardIsAnErrorOrABypass) {
  ShardCache::Options small = options();
  small.budget_bytes = kShardBytes - 1;
  EXPECT_THAT(error_text([&] { CacheAccess::get(*ShardCache::open(small), request(0)); }),
              AllOf(HasSubstr("shard cache's budget"), HasSubstr("/0.tar"),
                    HasSubstr("at least 100000 bytes")));
  EXPECT_EQ(error_code([&] {
              CacheAccess::get(*ShardCache::open(small), {.source = {.url = server_.url(path(0))}});
            }),
            ErrorCode::kNoSpace)
      << "also when only the server knows the size";
  small.bypass_large = true;
  const auto cache = ShardCache::open(small);
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_EQ(cache->stats().bypassed, 2u);
  small.budget_bytes = 0;
  EXPECT_EQ(error_code([&] { ShardCache::open(small); }), ErrorCode::kInvalidArgument);
}

TEST_F(ShardCacheRoomTest, AShardOfUnknownSizeMakesRoomAsItComes) {
  server_.serve("/chunked.tar", {.body = body(7), .has_head = false, .is_chunked = true});
  const auto cache = ShardCache::open(options(1000));
  EXPECT_EQ(test::read_file(
                CacheAccess::get(*cache, {.source = {.url = server_.url("/chunked.tar")}}).path()),
            body(7));
  EXPECT_EQ(cache->used_bytes(), kShardBytes);
}

TEST_F(ShardCacheRoomTest, FetchesAheadOnlyWhereThatCostsNothing) {
  const auto cache = ShardCache::open(options(2));
  read(*cache, 0);
  read(*cache, 1);
  std::map<std::string, NextUse> future;
  const auto next_use = [&](const std::string& name) { return future.at(name); };
  const auto at = [](std::uint64_t position, bool may_go_now = true) {
    return NextUse{.kind = NextUse::Kind::kAt, .position = position, .may_go_now = may_go_now};
  };
  NextUse& zero = future[CacheAccess::name_of(request(0))];
  NextUse& one = future[CacheAccess::name_of(request(1))];
  std::optional<ShardFetch> fetch;
  const auto begin = [&] {
    return CacheAccess::begin_ahead(*cache, request(2), 30, next_use, fetch);
  };

  zero = at(20), one = at(25);
  EXPECT_EQ(begin(), Ahead::kNotNow) << "both are needed sooner";
  zero = at(20), one = at(40, false);
  EXPECT_EQ(begin(), Ahead::kNotNow) << "the one to go is needed before";
  zero = at(20), one = at(40);
  {
    const CachedShard used = CacheAccess::get(*cache, request(1));
    EXPECT_EQ(begin(), Ahead::kNotNow) << "the one to go is in use";
  }
  ASSERT_EQ(begin(), Ahead::kFetch);
  EXPECT_EQ(CacheAccess::begin_ahead(*cache, request(2), 30, next_use, fetch), Ahead::kPresent)
      << "somebody fetches it";
  fetch->run();
  fetch.reset();
  EXPECT_EQ(begin(), Ahead::kPresent);
  read(*cache, 0);
  EXPECT_EQ(cache->stats().fetched, 3u);
}

TEST_F(ShardCacheRoomTest, AShardThatAnotherHoldsForLongIsPassedOver) {
  ShardCache::Options quick = options(2);
  quick.room_timeout = std::chrono::milliseconds(1);
  const auto cache = ShardCache::open(quick);
  read(*cache, 0);
  read(*cache, 1);
  const auto another = ShardCache::open(quick);
  const CachedShard held = CacheAccess::get(*another, request(1));
  const auto next_use = [&](const std::string& name) {
    return NextUse{.kind = NextUse::Kind::kAt,
                   .position = name == CacheAccess::name_of(request(1)) ? 50U : 40U};
  };
  std::optional<ShardFetch> fetch;
  const auto begin = [&] {
    return CacheAccess::begin_ahead(*cache, request(2), 30, next_use, fetch);
  };
  EXPECT_EQ(begin(), Ahead::kNotNow) << "the one to go is in use";
  Ahead answer = Ahead::kNotNow;
  while ((answer = begin()) == Ahead::kNotNow) std::this_thread::yield();
  ASSERT_EQ(answer, Ahead::kFetch);
  fetch->run();
  EXPECT_EQ(test::read_file(held.path()), body(1));
  EXPECT_EQ(cache->used_bytes(), 2 * kShardBytes);
}

// A batch spans several shards, and needs the next shard before it has read any of them completely.
TEST_F(ShardCacheRoomTest, NobodyWaitsForAShardThatIsHeld) {
  ShardCache::Options waiting = options(2);
  waiting.room_timeout = std::chrono::hours(1);
  const auto cache = ShardCache::open(waiting);
  const auto reader = std::make_shared<int>();
  CacheAccess::add_releaser(*cache, reader,
                            {.release = [](const std::string&) { return false; },
                             .is_in_use = [](const std::string&) { return true; }});
  static std::atomic<int> listings;
  set_fault_handler([](const char* point) {
    if (std::string_view(point) == "shard_cache.listing") ++listings;
  });
  for (const bool has_been_read : {false, true}) {
    std::deque<CachedShard> batch;
    listings = 0;
    for (int i = 0; i < 5; ++i) {
      batch.push_back(CacheAccess::get(*cache, request(i), [&](const std::string&) {
        return NextUse{.kind = NextUse::Kind::kAt, .position = 100, .may_go_now = has_been_read};
      }));
    }
    // Three requests make room. Each lists the files once, and once more if the cache exceeds its
    // budget.
    if (has_been_read) {
      EXPECT_LE(listings, 1 + 2 + 2) << "and no more, as if they had waited";
    } else {
      EXPECT_GT(listings, 1 + 2 + 2);
    }
    for (int i = 0; i < 5; ++i) EXPECT_EQ(test::read_file(batch[i].path()), body(i));
    EXPECT_EQ(cache->used_bytes(), 5 * kShardBytes) << "all are in use";
    batch.clear();
    const auto later = [&](const std::string&) {
      return NextUse{.kind = NextUse::Kind::kAt, .position = 100};
    };
    EXPECT_EQ(test::read_file(CacheAccess::get(*cache, request(5), later).path()), body(5));
    EXPECT_EQ(cache->used_bytes(), 2 * kShardBytes) << "what is let go leaves with the next";
    EXPECT_EQ(cache->prune(0).num_shards, 2U);
  }
  set_fault_handler(nullptr);
  EXPECT_EQ(cache->stats().fetched, 12U);
  EXPECT_EQ(cache->stats().bypassed, 0U);
}

TEST_F(ShardCacheRoomTest, ThatAnotherHasNoRoomYetIsListedOnlyWhenItMayHaveChanged) {
  static std::atomic<int> listings;
  const auto cache = ShardCache::open(options(4));
  read(*cache, 0);
  File other = File::open_or_create(dir_ / "cache/locks");
  ASSERT_TRUE(other.try_lock_byte(detail::fetch_byte(CacheAccess::name_of(request(1))), true));
  std::optional<ShardFetch> fetch;
  const auto listings_of_a_try = [&] {
    listings = 0;
    EXPECT_EQ(CacheAccess::begin_ahead(*cache, request(1), 30, nullptr, fetch), Ahead::kNotNow);
    return listings.load();
  };
  set_fault_handler([](const char* point) {
    if (std::string_view(point) == "shard_cache.listing") ++listings;
  });
  EXPECT_EQ(listings_of_a_try(), 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(listings_of_a_try(), 0);
  read(*cache, 2);
  EXPECT_EQ(listings_of_a_try(), 1);
  EXPECT_EQ(listings_of_a_try(), 0);
  test::write_file(
      dir_ / "cache/shards/" + CacheAccess::name_of(request(1)) + ".tar.0123456789ab.tmp", "x");
  cast_doubt();
  EXPECT_EQ(CacheAccess::begin_ahead(*cache, request(1), 30, nullptr, fetch), Ahead::kPresent);
  set_fault_handler(nullptr);
}

TEST_F(ShardCacheRoomTest, ANeededShardWaitsForTheOneThatShouldGo) {
  const auto cache = ShardCache::open(options(2));
  read(*cache, 0);
  read(*cache, 1);
  std::atomic<bool> done{false};
  const std::string last = CacheAccess::name_of(request(1));
  const auto next_use = [&](const std::string& name) {
    return name == last
               ? NextUse{.kind = NextUse::Kind::kAt, .position = 40, .may_go_now = done.load()}
               : NextUse{.kind = NextUse::Kind::kAt, .position = 35};
  };
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    done = true;
  });
  CacheAccess::get(*cache, request(2), next_use);
  reader.join();
  read(*cache, 0);
  EXPECT_EQ(cache->stats().fetched, 3u) << "0 stayed";
}

TEST_F(ShardCacheRoomTest, AsksForIdleMappingsToBeLetGo) {
  const auto cache = ShardCache::open(options(2));
  auto idle = std::make_shared<std::map<std::string, CachedShard>>();
  for (const int i : {0, 1}) {
    CachedShard shard = CacheAccess::get(*cache, request(i));
    idle->emplace(shard.name(), std::move(shard));
  }
  CacheAccess::add_releaser(*cache, idle,
                            {.release = [shards = idle.get()](const std::string& name) {
                              return shards->erase(name) > 0;
                            }});
  read(*cache, 2);
  EXPECT_EQ(cache->stats().bypassed, 0u);
  EXPECT_THAT(*idle, SizeIs(1));
  idle.reset();
  read(*cache, 3);
}

TEST_F(ShardCacheRoomTest, OpeningWaitsForNobodyWhoMakesRoom) {
  ShardCache::Options quick = options();
  quick.wait_timeout = std::chrono::milliseconds(1);
  read(*ShardCache::open(quick), 0);
  File stopped = File::open_or_create(dir_ / "cache/locks");
  ASSERT_TRUE(stopped.try_lock_byte(0, true));
  const auto cache = ShardCache::open(quick);
  EXPECT_EQ(read(*cache, 0), body(0));
  EXPECT_THAT(
      error_text([&] { read(*cache, 1); }),
      AllOf(HasSubstr("timed out"), HasSubstr("(process " + std::to_string(::getpid()) + " (")));
  stopped.unlock_byte(0);
  EXPECT_EQ(read(*cache, 1), body(1));
}

TEST_F(ShardCacheRoomTest, WhatComesWhileItIsListedIsCounted) {
  const auto large = ShardCache::open(options(5));
  for (const int i : {0, 1, 2}) read(*large, i);
  const auto small = ShardCache::open(options(2));
  bool is_first = true;
  CacheAccess::get(*small, request(0), [&](const std::string&) {
    if (std::exchange(is_first, false)) {
      read(*large, 3);
      read(*large, 4);
    }
    return NextUse{};
  });
  ASSERT_FALSE(is_first);
  for (const int i : {5, 6, 7}) read(*large, i);
  EXPECT_LE(large->used_bytes(), 5 * kShardBytes);
}

TEST_F(ShardCacheRoomTest, WhatComesWhileTheCountCannotBeOpenedIsCountedAgain) {
  const std::string count = dir_ / "cache/used";
  const auto cache = ShardCache::open(options(3));
  read(*cache, 0);
  // Opening the link for writing fails, as it would without a free descriptor.
  std::filesystem::rename(count, dir_ / "count");
  std::filesystem::create_symlink(dir_ / "count", count);
  read(*cache, 1);
  for (const int i : {2, 3, 4}) read(*cache, i);
  EXPECT_EQ(cache->used_bytes(), 3 * kShardBytes);
}

TEST_F(ShardCacheRoomTest, ACountOfItsBytesThatIsInDoubtOrDamagedIsCountedAgain) {
  const std::string count = dir_ / "cache/used";
  const auto cache = ShardCache::open(options(4));
  for (int i = 0; i < 3; ++i) read(*cache, i);
  const std::string three = test::read_file(count);
  for (int i = 3; i < 6; ++i) read(*cache, i);
  EXPECT_EQ(cache->used_bytes(), 4 * kShardBytes);
  const std::string four = test::read_file(count);
  // In turn: an empty file, a truncated file, a changed byte, and a file by a program that does not
  // know the doubt word. The cache has one shard more than the last file counts.
  for (const std::string& damaged : {std::string(), four.substr(0, 40), "x" + four.substr(1),
                                     three.substr(0, 24) + four.substr(24)}) {
    test::write_file(count, damaged);
    read(*cache, 6);
    read(*cache, 7);
    EXPECT_EQ(cache->used_bytes(), 4 * kShardBytes);
  }
  std::filesystem::remove(count);
  read(*cache, 0);
  EXPECT_EQ(cache->used_bytes(), 4 * kShardBytes);
  test::write_file(count, three);
  const auto again = ShardCache::open(options(4));
  EXPECT_EQ(counted_bytes(), 4 * kShardBytes);
  read(*again, 1);
  EXPECT_EQ(again->used_bytes(), 4 * kShardBytes) << "whoever opens the cache counts";
}

// A shard of unknown size takes room in steps, and its file is truncated to its size at the end.
TEST_F(ShardCacheRoomTest, AFileThatIsCutIsCountedOnce) {
  server_.serve("/chunked.tar",
                {.body = body(7), .has_ranges = false, .has_head = false, .is_chunked = true});
  const auto cache = ShardCache::open(options(2000));
  CacheRequest wanted{.source = {.url = server_.url("/chunked.tar")}};
  wanted.admission.check = [&](const std::string&) {
    cast_doubt();  // so that the next request lists the files
    read(*cache, 0);
    EXPECT_EQ(counted_bytes(), 2 * kShardBytes);
  };
  CacheAccess::get(*cache, wanted);
  EXPECT_EQ(counted_bytes(), 2 * kShardBytes);
}

TEST_F(ShardCacheRoomTest, AFileOutsideTheBudgetThatGrowsWhileItIsListedIsCounted) {
  // Another version is in use under the same name, so the new version becomes a separate file.
  server_.serve("/chunked.tar",
                {.body = body(6), .has_ranges = false, .has_head = false, .is_chunked = true});
  ShardCache::Options quick = options(2000);
  quick.room_timeout = std::chrono::milliseconds(1);
  const auto cache = ShardCache::open(quick);
  CacheRequest wanted{.source = {.url = server_.url("/chunked.tar")}};
  wanted.source.source_hash = hash128(body(6));
  const CachedShard used = CacheAccess::get(*cache, wanted);
  server_.serve("/chunked.tar",
                {.body = body(7), .has_ranges = false, .has_head = false, .is_chunked = true});
  wanted.source.source_hash = hash128(body(7));

  // A process that opens the cache while the file grows lists the file and counts it.
  static std::function<void()> open_another;
  open_another = [&] { static_cast<void>(ShardCache::open(quick)); };
  set_fault_handler([](const char* point) {
    if (std::string_view(point) != "shard_cache.in_doubt" || !open_another) return;
    std::exchange(open_another, nullptr)();
  });
  wanted.admission.check = [&](const std::string&) {
    EXPECT_FALSE(open_another);
    EXPECT_EQ(counted_bytes().value_or(cache->used_bytes()), cache->used_bytes());
  };
  const CachedShard own = CacheAccess::get(*cache, wanted);
  set_fault_handler(nullptr);
  EXPECT_TRUE(own.is_overflow());
}

TEST_F(ShardCacheRoomTest, AnOverrunIsTrimmedThoughItWasLookedForBeforeTheLastShardCame) {
  const auto cache = ShardCache::open(options(2));
  const auto reader = std::make_shared<int>();
  CacheAccess::add_releaser(*cache, reader,
                            {.release = [](const std::string&) { return false; },
                             .is_in_use = [](const std::string&) { return true; }});
  std::deque<CachedShard> batch;
  for (const int i : {0, 1}) batch.push_back(CacheAccess::get(*cache, request(i)));
  const auto later = [](const std::string&) {
    return NextUse{.kind = NextUse::Kind::kAt, .position = 100};
  };
  CacheRequest third = request(2);
  third.admission.check = [&](const std::string&) { CacheAccess::trim_overrun(*cache, later); };
  batch.push_back(CacheAccess::get(*cache, third, later));
  ASSERT_EQ(cache->used_bytes(), 3 * kShardBytes) << "all are in use";
  batch.clear();
  CacheAccess::trim_overrun(*cache, later);
  EXPECT_EQ(cache->used_bytes(), 2 * kShardBytes);
}

}  // namespace
}  // namespace shardwise
