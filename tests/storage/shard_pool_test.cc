#include "storage/shard_pool.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/chain.h"
#include "support/support.h"

namespace shardwise {
namespace {

/// A shard that counts how many shards exist.
struct FakeShard {
  FakeShard(std::uint64_t shard_number, std::uint64_t size, std::atomic<int>& count,
            bool costly = false)
      : number(shard_number), size_of_it(size), alive(count), is_costly_(costly) {
    ++alive;
  }
  FakeShard(const FakeShard&) = delete;
  FakeShard& operator=(const FakeShard&) = delete;
  ~FakeShard() {
    if (at_end) at_end();
    --alive;
  }

  std::uint64_t size_bytes() const { return size_of_it; }
  bool is_costly() const { return is_costly_; }

  std::uint64_t number;
  std::uint64_t size_of_it;
  std::atomic<int>& alive;
  bool is_costly_;
  std::function<void()> at_end;
};

/// True for every third shard.
bool is_third(std::uint64_t number) { return number % 3 == 1; }

using Pool = ShardPool<FakeShard>;

class ShardPoolTest : public ::testing::Test {
 protected:
  /// Returns a function that opens shard n with a size of (n + 1) * 10 bytes, and records its
  /// calls. Threads: one.
  /// @param has_costly  every third shard is costly.
  Pool::Opener opener(bool has_costly = false) {
    return [this, has_costly](std::uint64_t number) {
      opened_.push_back(number);
      return std::make_unique<FakeShard>(number, (number + 1) * 10, alive_,
                                         has_costly && is_third(number));
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
  is_cancelled.join();  // while another thread opens the shard
  may_open = true;
  opens.join();
  waits.join();
}

/// A model of the pool as a plain list. Its shards are those that ShardPoolTest::opener() opens.
class PoolModel {
 public:
  PoolModel(const ShardPoolOptions& options, bool has_costly)
      : options_(options), has_costly_(has_costly) {}

  void get(std::uint64_t number) {
    if (Open* const there = use(number)) {
      ++there->num_holders;
      return;
    }
    open_.push_back({.number = number});
    ++clock_;
    ++stats_.opened;
    while (make_room()) {
    }
  }
  void hold(std::uint64_t number) { ++at(number)->num_holders; }
  void let_go(std::uint64_t number) {
    const auto shard = at(number);
    if (--shard->num_holders == 0 && shard->is_closing) drop(shard);
  }
  bool close(std::uint64_t number) {
    const auto shard = at(number);
    if (shard == open_.end()) return false;
    shard->is_closing = true;
    if (shard->num_holders > 0) return false;
    drop(shard);
    return true;
  }
  bool evict(bool may_be_costly = true) {
    auto victim = open_.end();
    for (auto shard = open_.begin(); shard != open_.end(); ++shard) {
      if (shard->num_holders > 0 || (!may_be_costly && is_costly(*shard))) continue;
      if (victim == open_.end() || rank(*shard) < rank(*victim)) victim = shard;
    }
    if (victim == open_.end()) return false;
    drop(victim);
    return true;
  }
  bool is_pinned(std::uint64_t number) {
    return at(number) != open_.end() && at(number)->num_holders > 0;
  }
  ShardPoolStats stats() const {
    ShardPoolStats now = stats_;
    now.open_shards = open_.size();
    now.open_bytes = bytes(/*with_costly=*/true);
    return now;
  }

 private:
  struct Open {
    std::uint64_t number;
    int num_holders = 1;
    bool is_closing = false;
  };
  using Place = std::vector<Open>::iterator;

  Place at(std::uint64_t number) { return std::ranges::find(open_, number, &Open::number); }
  /// Records that the shard was used now. Time is the number of openings so far. Returns null if
  /// the shard is not open.
  Open* use(std::uint64_t number) {
    last_uses_[number] = clock_;
    return at(number) == open_.end() ? nullptr : &*at(number);
  }
  void drop(Place shard) {
    open_.erase(shard);
    ++stats_.evicted;
  }
  bool is_costly(const Open& shard) const { return has_costly_ && is_third(shard.number); }
  std::pair<bool, std::uint64_t> rank(const Open& shard) const {
    return {is_costly(shard), last_uses_.at(shard.number)};
  }
  std::uint64_t bytes(bool with_costly) const {
    std::uint64_t sum = 0;
    for (const Open& shard : open_) {
      if (with_costly || !is_costly(shard)) sum += (shard.number + 1) * 10;
    }
    return sum;
  }
  bool make_room() {
    if (open_.size() > options_.max_shards || bytes(true) > options_.max_bytes) return evict();
    return bytes(false) > options_.max_cheap_bytes && evict(/*may_be_costly=*/false);
  }

  const ShardPoolOptions options_;
  const bool has_costly_;
  std::vector<Open> open_;  // in the order in which they were opened
  std::map<std::uint64_t, std::uint64_t> last_uses_;
  std::uint64_t clock_ = 1;
  ShardPoolStats stats_;
};

TEST_F(ShardPoolTest, DoesWhatAPlainListDoes) {
  constexpr std::uint64_t kShards = 10;
  test::for_each_seed(60, 3000, [&](std::uint64_t seed) {
    test::Dice random(seed);
    ShardPoolOptions options;
    options.max_shards = random.below(6);
    if (random.flip()) options.max_bytes = random.below(300);
    const bool has_costly = random.flip();
    if (random.flip()) options.max_cheap_bytes = random.below(150);
    std::vector<Pool::Handle> held;  // may outlive the pool
    {
      Pool pool(kShards, opener(has_costly), options);
      PoolModel model(options, has_costly);
      for (int step = 0; step < 200 && !HasFailure(); ++step) {
        const std::uint64_t number = random.below(kShards);
        const std::size_t any = held.empty() ? 0 : random.below(held.size());
        switch (random.below(8)) {
          case 0:
          case 1:
          case 2:
            held.push_back(pool.get(number));
            model.get(number);
            ASSERT_EQ(held.back()->number, number);
            break;
          case 3:
            ASSERT_EQ(pool.close(number), model.close(number)) << "step " << step;
            break;
          case 4:
            ASSERT_EQ(pool.evict(), model.evict()) << "step " << step;
            break;
          case 5:
            if (held.empty()) break;
            model.hold(held[any]->number);
            held.push_back(held[any]);
            break;
          default:
            if (held.empty()) break;
            model.let_go(held[any]->number);
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(any));
        }
        const ShardPoolStats now = pool.stats(), expected = model.stats();
        ASSERT_EQ(now.opened, expected.opened) << "step " << step;
        ASSERT_EQ(now.evicted, expected.evicted) << "step " << step;
        ASSERT_EQ(now.open_shards, expected.open_shards) << "step " << step;
        ASSERT_EQ(now.open_bytes, expected.open_bytes) << "step " << step;
        ASSERT_EQ(alive_, static_cast<int>(expected.open_shards)) << "step " << step;
        ASSERT_EQ(pool.is_pinned(number), model.is_pinned(number)) << "step " << step;
      }
    }
    std::set<std::uint64_t> numbers;
    for (const Pool::Handle& shard : held) numbers.insert(shard->number);
    EXPECT_EQ(alive_, static_cast<int>(numbers.size()));
    held.clear();
    EXPECT_EQ(alive_, 0);
  });
}

TEST_F(ShardPoolTest, AnEvictionLooksAtFewShardsIfManyAreOpen) {
  constexpr std::size_t kOpen = 2000;
  const auto open_some = [&](Pool& pool, std::uint64_t first, std::uint64_t count) {
    const ShardPoolStats before = pool.stats();
    for (std::uint64_t i = 0; i < count; ++i) pool.get(first + i);
    return pool.stats().looks - before.looks;
  };
  {
    Pool pool(3 * kOpen, opener(), {.max_shards = kOpen});
    open_some(pool, 0, kOpen);
    EXPECT_LE(open_some(pool, kOpen, 2 * kOpen), 4 * kOpen);
  }
  {  // the shards are used between two openings
    test::Dice random(test::random_seed());
    Pool pool(3 * kOpen, opener(), {.max_shards = kOpen});
    open_some(pool, 0, kOpen);
    std::uint64_t uses = 0;
    for (std::uint64_t i = kOpen; i < 2 * kOpen; ++i) {
      open_some(pool, i, 1);
      for (; uses < 4 * (i - kOpen); ++uses) pool.find(random.below(2 * kOpen));
    }
    EXPECT_LE(pool.stats().looks, uses + 4 * kOpen);
  }
  {  // the shards that were used first are pinned
    Pool pool(4 * kOpen, opener(), {.max_shards = kOpen});
    std::vector<Pool::Handle> held;
    for (std::uint64_t i = 0; i < kOpen; ++i) held.push_back(pool.get(i));
    const std::uint64_t looks = open_some(pool, kOpen, kOpen);
    EXPECT_LE(looks, kOpen * 2 * (detail::LruQueue::kPinnedLooks + 2));
    held.clear();
    open_some(pool, 2 * kOpen, kOpen);
    EXPECT_EQ(pool.stats().open_shards, kOpen);
  }
}

TEST_F(ShardPoolTest, EvictFindsTheOneIdleShardAmongManyPinned) {
  Pool pool(100, opener());
  std::vector<Pool::Handle> held;
  for (std::uint64_t i = 0; i < 100; ++i) held.push_back(pool.get(i));
  EXPECT_FALSE(pool.evict());
  held[70] = {};
  EXPECT_TRUE(pool.evict());
  EXPECT_FALSE(pool.find(70));
  EXPECT_FALSE(pool.evict());
}

TEST_F(ShardPoolTest, ShardsThatWereNeverOpenedTakeNoMemory) {
  constexpr std::size_t kShards = 20'000'000;
  const auto allocated = [] {
    const struct mallinfo2 now = ::mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  const std::size_t before = allocated();
  Pool pool(kShards, opener());
  pool.get(kShards - 1);
  EXPECT_LE(allocated() - before, kShards / 4);
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

TEST_F(ShardPoolTest, AnEvictedShardIsDestroyedOutsideThePoolsLocks) {
  std::unique_ptr<Pool> pool;
  std::uint64_t seen = 0;
  pool = std::make_unique<Pool>(
      3,
      [&](std::uint64_t number) {
        auto shard = std::make_unique<FakeShard>(number, 1, alive_);
        shard->at_end = [&] {
          if (pool) seen = pool->stats().opened;  // would deadlock if the pool's lock were held
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
  EXPECT_EQ(pool.get(2)->number, 2U);  // evicts a shard
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
  std::vector<Pool::Handle> left;  // handles that outlive the pool
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
          // A pinned shard must not be closed.
          if (random() % 4 == 0 && pool.close(number)) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << "seed " << kSeed;
    const ShardPoolStats stats = pool.stats();
    EXPECT_EQ(stats.opened - stats.evicted, stats.open_shards);
    EXPECT_EQ(alive_, static_cast<int>(stats.open_shards));
    for (std::uint64_t number = 0; number < kShards; ++number) {
      // The shard may still be open, because close() does not close a shard while a handle to it is
      // being destroyed.
      pool.close(number);
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
    for (int got = 0; got < 2;) {  // an opening may still throw
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
