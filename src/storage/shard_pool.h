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
  /// Maximum number of open mappings. The kernel's default limit is 65,530 mappings per process.
  std::size_t max_shards = 4096;
  /// Maximum address space of open shards, in bytes.
  std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
  /// True for a shard that is expensive to open; such shards are closed last. Called under the
  /// pool's lock; may be empty.
  std::function<bool(std::uint64_t number)> is_dear = nullptr;
  /// Maximum bytes of cheap shards. No expensive shard is closed for it.
  std::uint64_t max_cheap_bytes = std::numeric_limits<std::uint64_t>::max();
};

struct ShardPoolStats {
  std::uint64_t opened = 0;  ///< shards opened, with repeats
  std::uint64_t evicted = 0;
  std::size_t open_shards = 0;
  std::uint64_t open_bytes = 0;
};

/// A bounded pool of opened shards, by number.
///
/// `Shard` is the caller's type of an opened shard, with a method `size_bytes()`. The pool evicts
/// the least recently used shard. "Recently" is counted in openings: the order of uses between two
/// openings is not kept, which makes a hit cheap.
///
/// Lifetime: a handle shares ownership, and stays valid after the pool's end. A shard with a handle
///   is pinned, not evicted; when all are pinned, the pool exceeds its bounds until they are not.
/// Threads: internally synchronised. One thread opens a shard. Other threads that want the same
///   shard wait; those that want another do not.
/// Processes: a forked child continues with a copy. It reopens shards that other threads of the
///   parent were opening. Shards that they pinned stay open in the child.
/// Cost: a hit is one atomic addition, and one more when the handle is destroyed.
template <class Shard>
class ShardPool {
 public:
  using Handle = ShardHandle<Shard>;
  /// Opens shard `number`. An exception reaches the caller of get(), and the pool stays unchanged.
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

  /// Returns the opened shard. REQUIRES: number < num_shards.
  Handle get(std::uint64_t number) {
    if (Handle opened = find(number)) return opened;
    return open(*slots_[number], number);
  }

  /// Returns the shard if it is open; else an empty handle. REQUIRES: number < num_shards.
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

  /// Closes the least recently used idle shard; returns false if all are pinned.
  bool evict() {
    std::unique_ptr<const Shard> victim;  // closed after the lock is released
    const Lock lock(book_->mutex);
    victim = drop_one();
    return victim != nullptr;
  }

  /// Closes this shard if it is open and idle; true if it did. If it is pinned, dropping the last
  /// pin closes it. If that pin is dropped at this very moment, the next call closes it.
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
  /// The open shards. Shared by shards that are pinned when the pool is destroyed.
  struct Book {
    void reserve(std::size_t num_shards) {
      const Lock lock(mutex);
      open.reserve(num_shards);  // add() must not fail: the shard is already open
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
    std::unique_ptr<const Shard> shard;  // written under the book's lock while not kOpen
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

  /// The right to open a shard, held by one thread at a time.
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

    /// Returns the shard if another thread has opened it; empty if this thread must open it.
    /// Errors: Cancelled, by this thread's CancelScope.
    Handle wait() {
      const Lock lock(pool_.book_->mutex);
      // An entry of another generation is from a thread of the parent, which does not exist in this
      // process.
      std::uint64_t& opening = pool_.opening_[number_];
      while (opening == process_generation()) {
        pool_.opened_.wait(pool_.book_->mutex, detail::CancelScope::joined({}));
      }
      if (slot_.try_pin()) return Handle(&slot_, slot_.shard.get());
      process_ = opening = process_generation();
      return {};
    }
    /// Puts the opened shard into the pool.
    Handle end(std::unique_ptr<const Shard>&& shard, std::uint64_t size_bytes) {
      const Lock lock(pool_.book_->mutex);
      // After a fork during opening, another thread of the child may have opened it meanwhile.
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
    std::uint64_t process_ = 0;  // copy of opening_, if this has the turn; else 0
  };

  /// Closes one shard if the pool exceeds its bounds; false if it does not, or no shard is idle.
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

  /// Takes an open shard out of the pool if it has exactly this many pins; else returns null.
  static std::unique_ptr<const Shard> take(Book& book, Slot& slot, std::uint64_t pins = 0) noexcept
      SHARDWISE_REQUIRES(book.mutex) {
    // kClosing changes under the lock alone.
    const std::uint64_t closing = slot.state.load(std::memory_order_relaxed) & Slot::kClosing;
    std::uint64_t now = Slot::kIdle | closing | pins;
    if (!slot.state.compare_exchange_strong(now, Slot::kPooled | pins, std::memory_order_acquire)) {
      return nullptr;
    }
    book.remove(slot.number, slot.shard->size_bytes());
    return std::move(slot.shard);
  }

  /// Takes the least recently used idle shard out of the pool.
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
      // Otherwise another thread pinned it meanwhile: look for the next.
      if (auto victim = take(*book_, *best)) return victim;
    }
  }

  const std::shared_ptr<Book> book_ = std::make_shared<Book>();
  std::vector<std::unique_ptr<Slot, LeavePool>> slots_;
  const Opener opener_;
  const ShardPoolOptions options_;
  std::atomic<std::uint64_t> clock_{1};
  Condition opened_;  // a shard was opened, or opening failed
  // For each shard, the generation of the process in which a thread opens it; 0 if no thread does.
  std::vector<std::uint64_t> opening_ SHARDWISE_GUARDED_BY(book_->mutex);
};

}  // namespace shardwise
