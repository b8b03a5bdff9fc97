#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace shardwise {

struct ShardPoolOptions {
  /// Mappings kept open at most. The kernel's own limit on mappings a process is 65,530 by default.
  std::size_t max_shards = 4096;
  /// Address space kept mapped at most, in bytes of shards.
  std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
};

struct ShardPoolStats {
  std::uint64_t opened = 0;  ///< shards opened, each time counted
  std::uint64_t evicted = 0;
  std::size_t open_shards = 0;
  std::uint64_t open_bytes = 0;
};

/// A bounded pool of opened shards, by number.
///
/// `Shard` is whatever an opened shard is to the caller; it must have `size_bytes()`. The pool
/// hands out shared ownership: what a caller holds stays valid however long, and a shard that
/// somebody holds is pinned, not evicted; when all are pinned the pool exceeds its bounds until
/// they are not. Eviction takes the shard that was least recently used, where "recently" is counted
/// in openings: the order of uses between two openings is not kept, which makes a hit cheap.
///
/// Threads: internally synchronised. A shard is opened by one thread; others that want it wait, and
/// those that want another shard do not.
/// Cost: a hit is an uncontended lock and a reference count, about 20 ns.
template <class Shard>
class ShardPool {
 public:
  using Handle = std::shared_ptr<const Shard>;
  /// Opens shard `number`; what it throws reaches the caller of get(), and nothing is kept.
  using Opener = std::function<Handle(std::uint64_t number)>;

  ShardPool(std::size_t num_shards, Opener opener, ShardPoolOptions options = {})
      : slots_(num_shards), opener_(std::move(opener)), options_(options) {}

  ShardPool(const ShardPool&) = delete;
  ShardPool& operator=(const ShardPool&) = delete;

  /// The opened shard. REQUIRES: number < num_shards.
  Handle get(std::uint64_t number) {
    Slot& slot = slots_[number];
    const std::uint64_t now = clock_.load(std::memory_order_relaxed);
    Handle shard;
    {
      const std::lock_guard lock(slot.mutex);
      if (slot.last_use != now) slot.last_use = now;
      if (slot.shard) return slot.shard;
      shard = opener_(number);
      slot.shard = shard;
    }
    admit(number, shard->size_bytes());
    return shard;
  }

  ShardPoolStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  struct Slot {
    std::mutex mutex;
    Handle shard;                // guarded by mutex
    std::uint64_t last_use = 0;  // guarded by mutex
  };

  /// Counts a shard that was just opened, and makes room. Locks: mutex_, then one slot at a time.
  void admit(std::uint64_t number, std::uint64_t size_bytes) {
    std::vector<Handle> dropped;  // unmapped after the locks are gone
    const std::lock_guard lock(mutex_);
    clock_.fetch_add(1, std::memory_order_relaxed);
    open_.push_back(number);
    ++stats_.opened;
    stats_.open_bytes += size_bytes;
    while (open_.size() > options_.max_shards || stats_.open_bytes > options_.max_bytes) {
      Handle victim = evict_one(number);
      if (!victim) break;
      stats_.open_bytes -= victim->size_bytes();
      ++stats_.evicted;
      dropped.push_back(std::move(victim));
    }
    stats_.open_shards = open_.size();
  }

  /// Takes the least recently used shard that nobody else holds out of the pool. REQUIRES: mutex_.
  Handle evict_one(std::uint64_t keep) {
    auto best = open_.end();
    std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
    for (auto it = open_.begin(); it != open_.end(); ++it) {
      if (*it == keep) continue;
      Slot& slot = slots_[*it];
      const std::lock_guard lock(slot.mutex);
      if (slot.shard.use_count() == 1 && slot.last_use < oldest) {
        oldest = slot.last_use;
        best = it;
      }
    }
    if (best == open_.end()) return nullptr;
    Slot& slot = slots_[*best];
    const std::lock_guard lock(slot.mutex);
    open_.erase(best);
    return std::move(slot.shard);
  }

  std::vector<Slot> slots_;
  const Opener opener_;
  const ShardPoolOptions options_;
  std::atomic<std::uint64_t> clock_{1};
  mutable std::mutex mutex_;
  std::vector<std::uint64_t> open_;  // guarded by mutex_
  ShardPoolStats stats_;             // guarded by mutex_
};

}  // namespace shardwise
