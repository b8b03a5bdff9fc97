#include "storage/shard_pool.h"

#include <atomic>
#include <barrier>
#include <future>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/support.h"

namespace shardwise {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

/// Something to pool that counts itself.
struct FakeShard {
  FakeShard(std::uint64_t shard_number, std::uint64_t size, std::atomic<int>& count)
      : number(shard_number), size_of_it(size), alive(count) {
    ++alive;
  }
  FakeShard(const FakeShard&) = delete;
  FakeShard& operator=(const FakeShard&) = delete;
  ~FakeShard() {
    if (at_end) at_end();
    --alive;
  }

  std::uint64_t size_bytes() const { return size_of_it; }

  std::uint64_t number;
  std::uint64_t size_of_it;
  std::atomic<int>& alive;
  std::function<void()> at_end;
};

using Pool = ShardPool<FakeShard>;

class ShardPoolTest : public ::testing::Test {
 protected:
  /// Shard n has (n + 1) * 10 bytes; openings are noted. For one thread.
  Pool::Opener opener() {
    return [this](std::uint64_t number) {
      opened_.push_back(number);
      return std::make_unique<FakeShard>(number, (number + 1) * 10, alive_);
    };
  }

  std::vector<std::uint64_t> opened_;
  std::atomic<int> alive_{0};
};

TEST_F(ShardPoolTest, AThreadThatIsCancelledDoesNotWaitForTheOneThatOpens) {
  std::atomic<bool> is_opening{false}, may_open{false};
  Pool pool(1, [&](std::uint64_t number) {
    is_opening = true;
    while (!may_open) std::this_thread::yield();
    return std::make_unique<FakeShard>(number, 10, alive_);
  });
  std::thread opens([&] { EXPECT_EQ(pool.get(0)->number, 0u); });
  while (!is_opening) std::this_thread::yield();
  CancelToken::Flag flag{false}, other_flag{false};
  std::thread waits([&] {
    const detail::CancelScope scope(other_flag);
    EXPECT_EQ(pool.get(0)->number, 0u) << "only the other one was cancelled";
  });
  std::thread is_cancelled([&] {
    const detail::CancelScope scope(flag);
    EXPECT_EQ(test::error_code([&] { pool.get(0); }), ErrorCode::kCancelled);
  });
  flag = true;
  is_cancelled.join();  // while the shard is still being opened
  may_open = true;
  opens.join();
  waits.join();
}

TEST_F(ShardPoolTest, OpensAShardOnceWhileItFits) {
  Pool pool(3, opener());
  const auto first = pool.get(1);
  EXPECT_EQ(first->number, 1U);
  EXPECT_EQ(pool.get(1), first);
  EXPECT_EQ(pool.get(0)->number, 0U);
  EXPECT_EQ(pool.get(1), first);
  EXPECT_THAT(opened_, ElementsAre(1, 0));
}

TEST_F(ShardPoolTest, EvictsTheLeastRecentlyUsed) {
  Pool pool(10, opener(), {.max_shards = 3});
  for (const std::uint64_t number : {0U, 1U, 2U}) pool.get(number);
  pool.get(0);  // now 1 is the oldest
  pool.get(3);  // evicts 1
  pool.get(0);
  pool.get(1);  // evicts 2
  EXPECT_THAT(opened_, ElementsAre(0, 1, 2, 3, 1));
  for (const std::uint64_t number : {0U, 1U, 3U}) pool.get(number);
  EXPECT_THAT(opened_, ElementsAre(0, 1, 2, 3, 1));
  pool.get(2);
  EXPECT_THAT(opened_, ElementsAre(0, 1, 2, 3, 1, 2));
  EXPECT_EQ(alive_, 3);
}

TEST_F(ShardPoolTest, DearShardsAreClosedLastAndNotForTheBoundOfCheapOnes) {
  const auto is_dear = [](std::uint64_t number) { return number % 2 == 1; };
  const auto is_open = [](Pool& pool, std::uint64_t number) { return bool(pool.find(number)); };
  Pool cheap(10, opener(), {.is_dear = is_dear, .max_cheap_bytes = 60});
  for (const std::uint64_t number : {1U, 3U, 0U, 2U}) cheap.get(number);
  EXPECT_EQ(cheap.stats().open_bytes, 20U + 40U + 10U + 30U);
  cheap.get(4);  // evicts 0, and then 2
  EXPECT_TRUE(is_open(cheap, 1) && is_open(cheap, 3) && is_open(cheap, 4));
  EXPECT_FALSE(is_open(cheap, 0) || is_open(cheap, 2));
  cheap.get(5);
  EXPECT_EQ(cheap.stats().open_shards, 4U);

  Pool all(10, opener(), {.max_bytes = 60, .is_dear = is_dear});
  for (const std::uint64_t number : {1U, 0U, 2U}) all.get(number);
  all.get(3);
  EXPECT_TRUE(is_open(all, 1) && is_open(all, 3)) << "the others left first";
  EXPECT_FALSE(is_open(all, 0) || is_open(all, 2));
}

TEST_F(ShardPoolTest, APinnedShardIsNotEvicted) {
  Pool pool(10, opener(), {.max_shards = 2});
  const auto pinned = pool.get(0);
  for (std::uint64_t number = 1; number < 10; ++number) pool.get(number);
  opened_.clear();
  EXPECT_EQ(pool.get(0), pinned);
  EXPECT_THAT(opened_, ElementsAre());
  EXPECT_EQ(pool.stats().open_shards, 2U);
}

TEST_F(ShardPoolTest, ExceedsItsBoundWhileAllArePinnedAndComesBack) {
  Pool pool(10, opener(), {.max_shards = 2});
  std::vector<Pool::Handle> pinned;
  for (std::uint64_t number = 0; number < 6; ++number) pinned.push_back(pool.get(number));
  EXPECT_EQ(pool.stats().open_shards, 6U);
  EXPECT_EQ(pool.stats().evicted, 0U);
  pinned.clear();
  pool.get(7);
  EXPECT_EQ(pool.stats().open_shards, 2U);
  EXPECT_EQ(pool.stats().evicted, 5U);
  EXPECT_EQ(alive_, 2);
}

TEST_F(ShardPoolTest, KeepsWithinItsBytes) {
  Pool pool(10, opener(), {.max_bytes = 100});  // sizes are 10, 20, 30, ...
  pool.get(0);
  pool.get(1);
  pool.get(2);
  EXPECT_EQ(pool.stats().open_bytes, 60U);
  pool.get(3);
  EXPECT_EQ(pool.stats().open_bytes, 100U);
  pool.get(4);  // 50 more: 0, 1 and 2 must go, 60 bytes
  EXPECT_EQ(pool.stats().open_bytes, 90U);
  EXPECT_EQ(pool.stats().open_shards, 2U);
  EXPECT_EQ(pool.stats().evicted, 3U);
}

TEST_F(ShardPoolTest, AShardLargerThanTheBoundIsServedAlone) {
  Pool pool(10, opener(), {.max_bytes = 5});
  pool.get(0);
  EXPECT_EQ(pool.get(9)->number, 9U);
  EXPECT_EQ(pool.stats().open_bytes, 100U);
  EXPECT_EQ(pool.stats().open_shards, 1U);
  EXPECT_EQ(pool.get(0)->number, 0U);
  EXPECT_EQ(pool.stats().open_bytes, 10U);
}

TEST_F(ShardPoolTest, ABoundOfNoneStillServes) {
  Pool pool(3, opener(), {.max_shards = 0, .max_bytes = 0});
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t number = 0; number < 3; ++number)
      EXPECT_EQ(pool.get(number)->number, number);
  }
}

TEST_F(ShardPoolTest, WhatTheOpenerThrowsReachesTheCallerAndNothingIsKept) {
  bool broken = true;
  Pool pool(3, [&, open = opener()](std::uint64_t number) {
    if (broken) throw std::runtime_error("cannot open " + std::to_string(number));
    return open(number);
  });
  for (int i = 0; i < 2; ++i) {
    try {
      pool.get(1);
      ADD_FAILURE() << "did not throw";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "cannot open 1");
    }
  }
  EXPECT_EQ(pool.stats().opened, 0U);
  EXPECT_EQ(pool.stats().open_shards, 0U);
  broken = false;
  EXPECT_EQ(pool.get(1)->number, 1U);
  EXPECT_EQ(pool.stats().opened, 1U);
}

TEST_F(ShardPoolTest, AnEvictedShardDiesWithItsLastHandle) {
  Pool::Handle kept;
  {
    Pool pool(3, opener(), {.max_shards = 1});
    kept = pool.get(0);
    pool.get(1);
    pool.get(2);
  }
  EXPECT_EQ(kept->number, 0U);
  EXPECT_EQ(alive_, 1);
  Pool::Handle copy = kept;
  kept = Pool::Handle();
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(copy->number, 0U);
  copy = std::move(kept);
  EXPECT_EQ(alive_, 0);
}

TEST_F(ShardPoolTest, AShardThatIsClosedWhileItIsHeldGoesWithItsLastHolder) {
  Pool pool(2, opener());
  Pool::Handle one = pool.get(0), two = one;
  EXPECT_FALSE(pool.close(0));
  one = {};
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(two->number, 0U);
  EXPECT_TRUE(pool.is_held(0));
  EXPECT_EQ(pool.find(0), two) << "until then it can be held again";
  two = {};
  EXPECT_EQ(alive_, 0) << "though the pool has room for it";
  EXPECT_FALSE(pool.is_held(0));
  EXPECT_EQ(pool.stats().evicted, 1U);
  EXPECT_EQ(pool.stats().open_shards, 0U);
  EXPECT_EQ(pool.stats().open_bytes, 0U);
  EXPECT_FALSE(pool.close(0)) << "it is not open";
  pool.get(0);
  EXPECT_EQ(alive_, 1) << "opened anew, it stays";
  EXPECT_EQ(pool.stats().opened, 2U);
}

TEST_F(ShardPoolTest, AShardThatIsClosedWhileItIsHeldOutlivesThePool) {
  Pool::Handle kept;
  {
    Pool pool(1, opener());
    kept = pool.get(0);
    EXPECT_FALSE(pool.close(0));
  }
  Pool::Handle copy = kept;
  kept = {};
  EXPECT_EQ(alive_, 1);
  copy = {};
  EXPECT_EQ(alive_, 0);
}

TEST_F(ShardPoolTest, StatsCountOpeningsAndEvictions) {
  Pool pool(4, opener(), {.max_shards = 2});
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t number = 0; number < 4; ++number) pool.get(number);
  }
  const ShardPoolStats stats = pool.stats();
  EXPECT_EQ(stats.opened, opened_.size());
  EXPECT_EQ(stats.opened - stats.evicted, stats.open_shards);
  EXPECT_EQ(stats.open_shards, 2U);
  EXPECT_EQ(stats.open_bytes, 70U);  // the last two
}

TEST_F(ShardPoolTest, AnEvictedShardIsDestroyedOutsideThePoolsLocks) {
  std::unique_ptr<Pool> pool;
  std::uint64_t seen = 0;
  pool = std::make_unique<Pool>(
      3,
      [&](std::uint64_t number) {
        auto shard = std::make_unique<FakeShard>(number, 1, alive_);
        shard->at_end = [&] {
          if (pool) seen = pool->stats().opened;  // would wait for ever under the pool's lock
        };
        return shard;
      },
      ShardPoolOptions{.max_shards = 1});
  pool->get(0);
  pool->get(1);
  EXPECT_EQ(seen, 2U);
  Pool* last = pool.release();
  delete last;
}

TEST_F(ShardPoolTest, RacingThreadsOpenAShardOnce) {
  constexpr int kThreads = 8;
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> openings{0};
    Pool pool(1, [&](std::uint64_t number) {
      ++openings;
      std::this_thread::yield();
      return std::make_unique<FakeShard>(number, 1, alive_);
    });
    std::barrier start(kThreads);
    std::vector<Pool::Handle> handles(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        handles[static_cast<std::size_t>(i)] = pool.get(0);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(openings, 1);
    for (const auto& handle : handles) EXPECT_EQ(handle, handles[0]);
  }
}

TEST_F(ShardPoolTest, AnOpeningDoesNotHoldUpOtherShards) {
  std::promise<void> other_is_there;
  std::promise<void> opening;
  Pool pool(3,
            [&](std::uint64_t number) {
              if (number == 0) {
                opening.set_value();
                other_is_there.get_future().wait();
              }
              return std::make_unique<FakeShard>(number, 1, alive_);
            },
            {.max_shards = 1});
  std::thread slow([&] { EXPECT_EQ(pool.get(0)->number, 0U); });
  opening.get_future().wait();
  EXPECT_EQ(pool.get(1)->number, 1U);
  EXPECT_EQ(pool.get(2)->number, 2U);  // with an eviction
  EXPECT_EQ(pool.stats().opened, 2U);
  other_is_there.set_value();
  slow.join();
}

TEST_F(ShardPoolTest, WaitersTryAgainWhenAnOpeningFails) {
  constexpr int kThreads = 6;
  std::atomic<int> attempts{0};
  Pool pool(1, [&](std::uint64_t number) {
    if (++attempts <= 3) throw std::runtime_error("not yet");
    return std::make_unique<FakeShard>(number, 1, alive_);
  });
  std::atomic<int> failed{0};
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      try {
        pool.get(0);
        ++served;
      } catch (const std::runtime_error&) {
        ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 3);
  EXPECT_EQ(served, kThreads - 3);
  EXPECT_EQ(attempts, 4);
}

TEST_F(ShardPoolTest, ThreadsThatHoldAndCloseTheSameShardsNeverLoseOne) {
  constexpr std::uint64_t kSeed = 101;
  constexpr std::size_t kShards = 3;
  constexpr unsigned kThreads = 6;
  std::vector<Pool::Handle> left;  // let go of after the pool
  {
    Pool pool(kShards, [&](std::uint64_t number) {
      return std::make_unique<FakeShard>(number, number, alive_);
    });
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(kSeed + t);
        for (int i = 0; i < 20'000; ++i) {
          const std::uint64_t number = random() % kShards;
          const Pool::Handle shard = pool.get(number), again = shard;
          if (shard->number != number || again != shard) ++wrong;
          if (random() % 4 == 0 && pool.close(number)) ++wrong;  // it is held
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << "seed " << kSeed;
    const ShardPoolStats stats = pool.stats();
    EXPECT_EQ(stats.opened - stats.evicted, stats.open_shards);
    EXPECT_EQ(alive_, static_cast<int>(stats.open_shards));
    for (std::uint64_t number = 0; number < kShards; ++number) {
      pool.close(number);  // whoever let go at the moment of a close may have left it open
      EXPECT_FALSE(pool.find(number));
    }
    EXPECT_EQ(alive_, 0);
    for (std::uint64_t number = 0; number < kShards; ++number) {
      left.push_back(pool.get(number));
      pool.close(number);
    }
  }
  left.clear();
  EXPECT_EQ(alive_, 0);
}

TEST_F(ShardPoolTest, ManyThreadsWithSmallBoundsGetWhatTheyAskFor) {
  constexpr std::uint64_t kSeed = 99;
  constexpr std::size_t kShards = 20;
  constexpr unsigned kThreads = 8;
  RecordProperty("seed", std::to_string(kSeed));
  for (const std::size_t max_shards : {1U, 2U, 5U}) {
    std::atomic<int> openings{0};
    Pool pool(kShards,
              [&](std::uint64_t number) {
                if (++openings % 50 == 0) throw std::runtime_error("now and then");
                return std::make_unique<FakeShard>(number, number, alive_);
              },
              {.max_shards = max_shards, .max_bytes = 40});
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(kSeed + t);
        std::vector<Pool::Handle> held(3);
        for (int i = 0; i < 3000; ++i) {
          const std::uint64_t number = random() % kShards;
          try {
            Pool::Handle shard = pool.get(number);
            if (shard->number != number) ++wrong;
            held[random() % held.size()] = std::move(shard);
          } catch (const std::runtime_error&) {
          }
          for (const auto& shard : held) {
            if (shard && shard->number >= kShards) ++wrong;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << "seed " << kSeed;
    for (int got = 0; got < 2;) {  // an opening may still be the one that throws
      try {
        pool.get(static_cast<std::uint64_t>(got));
        ++got;
      } catch (const std::runtime_error&) {
      }
    }
    const ShardPoolStats stats = pool.stats();
    EXPECT_EQ(stats.opened - stats.evicted, stats.open_shards);
    EXPECT_EQ(alive_, static_cast<int>(stats.open_shards));
  }
}

}  // namespace
}  // namespace shardwise
