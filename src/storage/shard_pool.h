#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/cancel_scope.h"
#include "base/fork.h"
#include "storage/opening_time.h"
#include "storage/shard_handle.h"

namespace shardwise {

struct ShardPoolOptions {
  /// Maximum number of open mappings. By default the kernel allows 65,530 mappings per process.
  std::size_t max_shards = 4096;
  /// Maximum total size of open shards in the address space, in bytes.
  std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
  /// Returns true for a shard that is expensive to open; such shards are closed last. Called with
  /// the pool's lock held; may be empty.
  std::function<bool(std::uint64_t number)> is_dear = nullptr;
  /// Maximum total size of open cheap shards, in bytes. Expensive shards are not closed to satisfy
  /// it.
  std::uint64_t max_cheap_bytes = std::numeric_limits<std::uint64_t>::max();
};

struct ShardPoolStats {
  std::uint64_t opened = 0;  ///< number of openings; a shard opened twice counts twice
  std::uint64_t evicted = 0;
  std::size_t open_shards = 0;
  std::uint64_t open_bytes = 0;
};

/// A bounded pool of open shards, identified by their numbers.
///
/// `Shard` is the caller's type of an open shard, with a method `size_bytes()`. The pool evicts the
/// least recently used shard. To make a hit cheap, time advances only when a shard is opened: uses
/// between two openings are not ordered.
///
/// Lifetime: a handle shares ownership, and stays valid after the pool is destroyed. A shard with a
///   handle is pinned and cannot be evicted. If all shards are pinned, the pool exceeds its bounds
///   until some are unpinned.
/// Threads: internally synchronised. Each shard is opened by one thread. Other threads that want
///   this shard wait for it; threads that want other shards do not wait.
/// Processes: a forked child has a copy of the pool. The child reopens shards that other threads of
///   the parent were opening at the fork. Shards that those threads had pinned stay open in the
///   child.
/// Cost: a hit costs one atomic addition, and destroying the handle another.
template <class Shard>
class ShardPool {
 public:
  using Handle = ShardHandle<Shard>;
  /// Opens the shard `number`. If it throws, get() rethrows the exception and the pool stays
  /// unchanged.
  using Opener = std::function<std::unique_ptr<const Shard>(std::uint64_t number)>;

  ShardPool(std::size_t num_shards, Opener opener, ShardPoolOptions options = {})
      : opener_(std::move(opener)), options_(options) {
    slots_.reserve(num_shards);
    opening_.resize(num_shards);
    book_->reserve(num_shards);
    for (std::size_t i = 0; i < num_shards; ++i) slots_.emplace_back(new Slot(book_, i));
  }

  ShardPool(const ShardPool&) = delete;
  ShardPool& operator=(const ShardPool&) = delete;

  /// Returns the shard, and opens it if necessary. REQUIRES: number < num_shards.
  Handle get(std::uint64_t number) {
    if (Handle opened = find(number)) return opened;
    return open(*slots_[number], number);
  }

  /// Returns the shard if it is open; otherwise an empty handle. REQUIRES: number < num_shards.
  Handle find(std::uint64_t number) noexcept {
    SHARDWISE_ASSERT_HOT(number < slots_.size());
    Slot& slot = *slots_[number];
    const std::uint64_t now = clock_.load(std::memory_order_relaxed);
    if (slot.last_use.load(std::memory_order_relaxed) != now) {
      slot.last_use.store(now, std::memory_order_relaxed);
    }
    if (slot.try_pin()) return Handle(&slot, slot.shard.get());
    return {};
  }

  /// Closes the least recently used idle shard. Returns false if all shards are pinned.
  bool evict() {
    std::unique_ptr<const Shard> victim;  // closed after the lock is released
    const Lock lock(book_->mutex);
    victim = drop_one();
    return victim != nullptr;
  }

  /// Closes this shard if it is open and idle, and returns true if it was closed. A pinned shard is
  /// closed when its last pin is dropped. If the last pin is dropped during this call, the next
  /// call closes the shard.
  /// REQUIRES: number < num_shards.
  bool close(std::uint64_t number) {
    SHARDWISE_ASSERT(number < slots_.size());
    Slot& slot = *slots_[number];
    std::unique_ptr<const Shard> victim;  // closed after the lock is released
    const Lock lock(book_->mutex);
    if ((slot.state.load(std::memory_order_relaxed) & Slot::kOpen) == 0) return false;
    slot.state.fetch_or(Slot::kClosing, std::memory_order_relaxed);
    victim = take(*book_, slot);
    return victim != nullptr;
  }

  /// True if this shard is open and pinned. REQUIRES: number < num_shards.
  bool is_pinned(std::uint64_t number) const noexcept {
    SHARDWISE_ASSERT(number < slots_.size());
    const auto state = slots_[number]->state.load(std::memory_order_relaxed);
    return (state & Slot::kOpen) != 0 && (state & ~Slot::kClosing) != Slot::kIdle;
  }

  ShardPoolStats stats() const {
    const Lock lock(book_->mutex);
    return book_->stats;
  }

 private:
  /// The list of open shards. Pinned shards share it, because they may outlive the pool.
  struct Book {
    void reserve(std::size_t num_shards) {
      const Lock lock(mutex);
      open.reserve(num_shards);  // add() must not fail, because the shard is already open by then
    }
    void add(std::uint64_t number, std::uint64_t size_bytes) noexcept SHARDWISE_REQUIRES(mutex) {
      open.push_back(number);
      ++stats.opened;
      ++stats.open_shards;
      stats.open_bytes += size_bytes;
    }
    void remove(std::uint64_t number, std::uint64_t size_bytes) noexcept SHARDWISE_REQUIRES(mutex) {
      open.erase(std::find(open.begin(), open.end(), number));
      ++stats.evicted;
      --stats.open_shards;
      stats.open_bytes -= size_bytes;
    }

    Mutex mutex;
    std::vector<std::uint64_t> open SHARDWISE_GUARDED_BY(mutex);
    ShardPoolStats stats SHARDWISE_GUARDED_BY(mutex);
  };

  struct Slot : detail::ShardPin {
    Slot(std::shared_ptr<Book> of, std::uint64_t shard_number)
        : ShardPin([](ShardPin* pin) noexcept { delete static_cast<Slot*>(pin); },
                   [](ShardPin* pin) noexcept {
                     std::unique_ptr<const Shard> gone;  // closed after the lock is released
                     Slot& slot = *static_cast<Slot*>(pin);
                     Book& open = *slot.book;
                     const Lock lock(open.mutex);
                     gone = take(open, slot, kPin);
                     return gone != nullptr;
                   }),
          book(std::move(of)),
          number(shard_number) {}

    const std::shared_ptr<Book> book;
    const std::uint64_t number;
    std::unique_ptr<const Shard> shard;  // written only with the book's lock held and kOpen unset
    std::atomic<std::uint64_t> last_use{0};
  };
  struct LeavePool {
    void operator()(Slot* slot) const noexcept { slot->leave_pool(); }
  };

  Handle open(Slot& slot, std::uint64_t number) {
    const detail::OpeningTimer timer;
    Turn turn(*this, slot, number);
    if (Handle opened = turn.wait()) return opened;
    std::unique_ptr<const Shard> shard = opener_(number);
    const std::uint64_t size_bytes = shard->size_bytes();
    Handle handle = turn.end(std::move(shard), size_bytes);
    while (make_room()) {
    }
    return handle;
  }

  /// The right to open one shard. At most one thread has it at a time.
  class Turn {
   public:
    Turn(ShardPool& pool, Slot& slot, std::uint64_t number)
        : pool_(pool), slot_(slot), number_(number) {}
    ~Turn() {
      if (process_ == 0) return;
      const Lock lock(pool_.book_->mutex);
      give_up();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// Waits while another thread opens the shard. Returns the shard if that succeeded; an empty
    /// handle if this thread must open it.
    /// Errors: Cancelled, if this thread's CancelScope is cancelled.
    Handle wait() {
      const Lock lock(pool_.book_->mutex);
      // Ignore an entry of another generation: the thread that set it belongs to the parent, and
      // does not exist in this process.
      std::uint64_t& opening = pool_.opening_[number_];
      while (opening == process_generation()) {
        pool_.opened_.wait(pool_.book_->mutex, detail::CancelScope::joined({}));
      }
      if (slot_.try_pin()) return Handle(&slot_, slot_.shard.get());
      process_ = opening = process_generation();
      return {};
    }
    /// Adds the opened shard to the pool.
    Handle end(std::unique_ptr<const Shard>&& shard, std::uint64_t size_bytes) {
      const Lock lock(pool_.book_->mutex);
      // After a fork during an opening, another thread of the child may have opened the shard too.
      if (slot_.try_pin()) return Handle(&slot_, slot_.shard.get());
      slot_.shard = std::move(shard);
      slot_.state.fetch_add(Slot::kOpen + Slot::kPin, std::memory_order_release);
      pool_.clock_.fetch_add(1, std::memory_order_relaxed);
      pool_.book_->add(number_, size_bytes);
      give_up();
      return Handle(&slot_, slot_.shard.get());
    }

   private:
    void give_up() noexcept SHARDWISE_REQUIRES(pool_.book_->mutex) {
      std::uint64_t& opening = pool_.opening_[number_];
      if (opening == std::exchange(process_, 0)) opening = 0;
      pool_.opened_.notify_all();
    }

    ShardPool& pool_;
    Slot& slot_;
    const std::uint64_t number_;
    // Generation stored in opening_ if this thread may open the shard; otherwise 0.
    std::uint64_t process_ = 0;
  };

  /// Closes one shard if the pool exceeds its bounds. Returns false if it does not, or if no shard
  /// is idle.
  bool make_room() {
    std::unique_ptr<const Shard> victim;  // closed after the lock is released
    const Lock lock(book_->mutex);
    const std::uint64_t open_bytes = book_->stats.open_bytes;
    if (book_->open.size() > options_.max_shards || open_bytes > options_.max_bytes) {
      victim = drop_one();
    } else if (open_bytes > options_.max_cheap_bytes && has_too_many_cheap()) {
      victim = drop_one(/*may_be_dear=*/false);
    }
    return victim != nullptr;
  }

  bool is_dear(std::uint64_t number) const { return options_.is_dear && options_.is_dear(number); }
  bool has_too_many_cheap() const SHARDWISE_REQUIRES(book_->mutex) {
    std::uint64_t bytes = 0;
    for (const std::uint64_t number : book_->open) {
      if (!is_dear(number)) bytes += slots_[number]->shard->size_bytes();
    }
    return bytes > options_.max_cheap_bytes;
  }

  /// Removes an open shard from the pool if it has exactly `pins` pins; otherwise returns null.
  static std::unique_ptr<const Shard> take(Book& book, Slot& slot, std::uint64_t pins = 0) noexcept
      SHARDWISE_REQUIRES(book.mutex) {
    // kClosing is changed only with the lock held.
    const std::uint64_t closing = slot.state.load(std::memory_order_relaxed) & Slot::kClosing;
    std::uint64_t now = Slot::kIdle | closing | pins;
    if (!slot.state.compare_exchange_strong(now, Slot::kPooled | pins, std::memory_order_acquire)) {
      return nullptr;
    }
    book.remove(slot.number, slot.shard->size_bytes());
    return std::move(slot.shard);
  }

  /// Removes the least recently used idle shard from the pool.
  std::unique_ptr<const Shard> drop_one(bool may_be_dear = true) SHARDWISE_REQUIRES(book_->mutex) {
    for (;;) {
      Slot* best = nullptr;
      std::pair<bool, std::uint64_t> first{true, std::numeric_limits<std::uint64_t>::max()};
      for (const std::uint64_t number : book_->open) {
        Slot& slot = *slots_[number];
        if (is_pinned(number)) continue;
        const std::pair<bool, std::uint64_t> rank{is_dear(number),
                                                  slot.last_use.load(std::memory_order_relaxed)};
        if (rank.first && !may_be_dear) continue;
        if (rank < first) {
          first = rank;
          best = &slot;
        }
      }
      if (best == nullptr) return nullptr;
      // If take() fails, another thread has pinned the shard in the meantime; look for the next
      // one.
      if (auto victim = take(*book_, *best)) return victim;
    }
  }

  const std::shared_ptr<Book> book_ = std::make_shared<Book>();
  std::vector<std::unique_ptr<Slot, LeavePool>> slots_;
  const Opener opener_;
  const ShardPoolOptions options_;
  std::atomic<std::uint64_t> clock_{1};
  Condition opened_;  // signalled after a shard was opened, or failed to open
  // For each shard, the generation of the process in which a thread is opening it; 0 if none is.
  std::vector<std::uint64_t> opening_ SHARDWISE_GUARDED_BY(book_->mutex);
};

}  // namespace shardwise
