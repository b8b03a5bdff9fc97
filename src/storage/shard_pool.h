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

#include "base/fork.h"
#include "storage/shard_handle.h"

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
/// those that want another shard do not. After fork() the child goes on with a copy; what other
/// threads of the parent were opening it opens itself, and what they held stays open in it.
/// Cost: a hit is one atomic addition, and another when the handle goes.
template <class Shard>
class ShardPool {
 public:
  using Handle = ShardHandle<Shard>;
  /// Opens shard `number`; what it throws reaches the caller of get(), and nothing is kept.
  using Opener = std::function<std::unique_ptr<const Shard>(std::uint64_t number)>;

  ShardPool(std::size_t num_shards, Opener opener, ShardPoolOptions options = {})
      : opener_(std::move(opener)), options_(options) {
    slots_.reserve(num_shards);
    open_.reserve(num_shards);  // admit() must not fail: the shard is open already
    for (std::size_t i = 0; i < num_shards; ++i) slots_.emplace_back(new Slot);
  }

  ShardPool(const ShardPool&) = delete;
  ShardPool& operator=(const ShardPool&) = delete;

  /// The opened shard. REQUIRES: number < num_shards.
  Handle get(std::uint64_t number) {
    Slot& slot = *slots_[number];
    const std::uint64_t now = clock_.load(std::memory_order_relaxed);
    if (slot.last_use.load(std::memory_order_relaxed) != now) {
      slot.last_use.store(now, std::memory_order_relaxed);
    }
    if (slot.try_hold()) return Handle(&slot, slot.shard.get());
    return open(slot, number);
  }

  /// Closes the least recently used shard that nobody holds; false if there is none.
  bool evict() {
    std::unique_ptr<const Shard> victim;  // closed after the lock is gone
    const std::lock_guard lock(mutex_);
    victim = drop_one();
    return victim != nullptr;
  }

  /// Closes this shard, if it is open and nobody holds it; true if it did.
  /// REQUIRES: number < num_shards.
  bool close(std::uint64_t number) {
    std::unique_ptr<const Shard> victim;  // closed after the lock is gone
    const std::lock_guard lock(mutex_);
    const auto found = std::find(open_.begin(), open_.end(), number);
    if (found != open_.end()) victim = take(found);
    if (victim) count_out(*victim);
    return victim != nullptr;
  }

  ShardPoolStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  struct Slot : detail::ShardPin {
    Slot() : ShardPin([](ShardPin* pin) noexcept { delete static_cast<Slot*>(pin); }) {}

    std::unique_ptr<const Shard> shard;  // written under mutex_ while it is not kOpen
    std::atomic<std::uint64_t> last_use{0};
    std::uint64_t opening = 0;  // the process of which a thread opens it; guarded by mutex_
  };
  static constexpr std::uint64_t kIdle = Slot::kPooled | Slot::kOpen;
  struct LeavePool {
    void operator()(Slot* slot) const noexcept { slot->leave_pool(); }
  };

  Handle open(Slot& slot, std::uint64_t number) {
    Turn turn(*this, slot);
    if (Handle opened = turn.wait()) return opened;
    std::unique_ptr<const Shard> shard = opener_(number);
    const std::uint64_t size_bytes = shard->size_bytes();
    Handle handle = turn.end(number, std::move(shard), size_bytes);
    while (make_room()) {
    }
    return handle;
  }

  /// The right to open a shard, of one thread at a time.
  class Turn {
   public:
    Turn(ShardPool& pool, Slot& slot) : pool_(pool), slot_(slot) {}
    ~Turn() {
      if (process_ == 0) return;
      const std::lock_guard lock(pool_.mutex_);
      give_up();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// The shard, if another thread has opened it; nothing: this one is to.
    Handle wait() {
      std::unique_lock lock(pool_.mutex_);
      // A thread that began in the process that this one was forked from does not exist here.
      pool_.opened_.wait(lock, [this] { return slot_.opening != process_generation(); });
      if (slot_.try_hold()) return Handle(&slot_, slot_.shard.get());
      process_ = slot_.opening = process_generation();
      return {};
    }
    /// Puts the shard, which was opened, into the pool.
    Handle end(std::uint64_t number, std::unique_ptr<const Shard>&& shard,
               std::uint64_t size_bytes) {
      const std::lock_guard lock(pool_.mutex_);
      // Forked while it was opened, and opened by another thread of the child meanwhile.
      if (slot_.try_hold()) return Handle(&slot_, slot_.shard.get());
      slot_.shard = std::move(shard);
      slot_.state.fetch_add(Slot::kOpen + Slot::kHolder, std::memory_order_release);
      pool_.admit(number, size_bytes);
      give_up();
      return Handle(&slot_, slot_.shard.get());
    }

   private:
    /// REQUIRES: mutex_.
    void give_up() noexcept {
      if (slot_.opening == std::exchange(process_, 0)) slot_.opening = 0;
      pool_.opened_.notify_all();
    }

    ShardPool& pool_;
    Slot& slot_;
    std::uint64_t process_ = 0;  // the slot's `opening`, if it is this one's
  };

  /// Counts a shard that was just opened. REQUIRES: mutex_.
  void admit(std::uint64_t number, std::uint64_t size_bytes) noexcept {
    clock_.fetch_add(1, std::memory_order_relaxed);
    open_.push_back(number);
    ++stats_.opened;
    ++stats_.open_shards;
    stats_.open_bytes += size_bytes;
  }

  /// Closes one shard if the pool exceeds its bounds; false if it does not, or no shard is idle.
  bool make_room() {
    std::unique_ptr<const Shard> victim;  // closed after the lock is gone
    const std::lock_guard lock(mutex_);
    if (open_.size() > options_.max_shards || stats_.open_bytes > options_.max_bytes) {
      victim = drop_one();
    }
    return victim != nullptr;
  }

  /// Takes a shard out of the pool and of its counts, if one is idle. REQUIRES: mutex_.
  std::unique_ptr<const Shard> drop_one() {
    std::unique_ptr<const Shard> victim = least_recently_used();
    if (victim) count_out(*victim);
    return victim;
  }

  void count_out(const Shard& victim) {
    ++stats_.evicted;
    --stats_.open_shards;
    stats_.open_bytes -= victim.size_bytes();
  }

  /// Takes an open shard out of the pool; nothing if somebody holds it, or is about to.
  /// REQUIRES: mutex_.
  std::unique_ptr<const Shard> take(std::vector<std::uint64_t>::iterator open) {
    Slot& slot = *slots_[*open];
    std::uint64_t idle = kIdle;
    if (!slot.state.compare_exchange_strong(idle, Slot::kPooled, std::memory_order_acquire)) {
      return nullptr;
    }
    open_.erase(open);
    return std::move(slot.shard);
  }

  /// Takes the least recently used shard that nobody holds. REQUIRES: mutex_.
  std::unique_ptr<const Shard> least_recently_used() {
    for (;;) {
      auto best = open_.end();
      std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
      for (auto it = open_.begin(); it != open_.end(); ++it) {
        const Slot& slot = *slots_[*it];
        const std::uint64_t last_use = slot.last_use.load(std::memory_order_relaxed);
        if (slot.state.load(std::memory_order_relaxed) == kIdle && last_use < oldest) {
          oldest = last_use;
          best = it;
        }
      }
      if (best == open_.end()) return nullptr;
      // Otherwise another thread took hold of it meanwhile: look for the next.
      if (auto victim = take(best)) return victim;
    }
  }

  std::vector<std::unique_ptr<Slot, LeavePool>> slots_;
  const Opener opener_;
  const ShardPoolOptions options_;
  std::atomic<std::uint64_t> clock_{1};
  mutable Mutex mutex_;
  Condition opened_;                 // a shard, or not
  std::vector<std::uint64_t> open_;  // guarded by mutex_
  ShardPoolStats stats_;             // guarded by mutex_
};

}  // namespace shardwise
