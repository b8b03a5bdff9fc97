#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/assert.h"
#include "base/cancel_scope.h"
#include "base/fork.h"
#include "storage/lru_queue.h"
#include "storage/opening_time.h"
#include "storage/shard_handle.h"

namespace shardwise {

struct ShardPoolOptions {
  /// Maximum number of open mappings. By default the kernel allows 65,530 mappings per process.
  std::size_t max_shards = 4096;
  /// Maximum total size of open shards in the address space, in bytes.
  std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
  /// Maximum total size of open shards that are not costly, in bytes. Costly shards are not closed
  /// to satisfy it.
  std::uint64_t max_cheap_bytes = std::numeric_limits<std::uint64_t>::max();
};

struct ShardPoolStats {
  std::uint64_t opened = 0;  ///< number of openings; a shard opened twice counts twice
  std::uint64_t evicted = 0;
  std::size_t open_shards = 0;
  std::uint64_t open_bytes = 0;
  std::uint64_t looks = 0;  ///< number of shards that all searches for a victim looked at
};

/// A bounded pool of open shards, identified by their numbers.
///
/// `Shard` is the caller's type of an open shard, with the methods `size_bytes()` and
/// `is_costly()`, whose results do not change. A costly shard is expensive to open. The pool evicts
/// the least recently used shard, and costly shards after all others. To make a hit cheap, the
/// pool's clock advances only when a shard is opened: uses between two openings are not ordered.
///
/// Lifetime: a handle shares ownership, and stays valid after the pool is destroyed. A shard with a
///   handle is pinned and cannot be evicted. If all shards are pinned, the pool exceeds its bounds
///   until some are unpinned. If more than LruQueue::kPinnedLooks shards were pinned, the pool may
///   need several openings to notice that they are unpinned.
/// Threads: internally synchronised. Each shard is opened by one thread. Other threads that want
///   this shard wait for it; threads that want other shards do not wait.
/// Processes: a forked child has a copy of the pool. The child reopens shards that other threads of
///   the parent were opening at the fork. Shards that those threads had pinned stay open in the
///   child.
/// Cost: a hit costs one atomic addition, and destroying the handle another. An opening costs
///   O(log n) for n open shards. The memory grows with the shards that were opened, not with
///   num_shards.
template <class Shard>
class ShardPool {
 public:
  using Handle = ShardHandle<Shard>;
  /// Opens the shard `number`. If it throws, get() rethrows the exception and the pool stays
  /// unchanged.
  using Opener = std::function<std::unique_ptr<const Shard>(std::uint64_t number)>;

  ShardPool(std::size_t num_shards, Opener opener, ShardPoolOptions options = {})
      : num_shards_(num_shards),
        chunks_(std::make_unique<std::atomic<Chunk*>[]>(num_chunks())),
        opener_(std::move(opener)),
        options_(options) {}
  ~ShardPool() {
    // Hold the lock, because another thread may close a shard when it drops the last pin.
    {
      const Lock lock(book_->mutex);
      for_each_slot([](std::atomic<Slot*>& at) {
        // The last pin of a pinned slot deletes the slot.
        if (!at.load(std::memory_order_relaxed)->leave_pool()) at = nullptr;
      });
      book_->queue.clear();
    }
    for_each_slot([](std::atomic<Slot*>& at) { delete at.load(std::memory_order_relaxed); });
    for (std::size_t i = 0; i < num_chunks(); ++i) delete chunks_[i].load();
  }

  ShardPool(const ShardPool&) = delete;
  ShardPool& operator=(const ShardPool&) = delete;

  /// Returns the shard, and opens it if necessary. REQUIRES: number < num_shards.
  Handle get(std::uint64_t number) {
    if (Handle opened = find(number)) return opened;
    return open(make_slot(number), number);
  }

  /// Returns the shard if it is open; otherwise an empty handle. REQUIRES: number < num_shards.
  Handle find(std::uint64_t number) noexcept {
    Slot* const slot = find_slot(number);
    if (slot == nullptr) return {};
    const std::uint64_t now = clock_.load(std::memory_order_relaxed);
    if (slot->last_use.load(std::memory_order_relaxed) != now) {
      slot->last_use.store(now, std::memory_order_relaxed);
    }
    if (slot->try_pin()) return Handle(slot, slot->shard.get());
    return {};
  }

  /// Closes the least recently used idle shard. Returns false if all shards are pinned.
  bool evict() {
    std::unique_ptr<const Shard> victim;  // closed after the lock is released
    const Lock lock(book_->mutex);
    victim = drop_one();
    if (!victim) victim = drop_one(/*may_be_costly=*/true, /*max_pinned=*/kAll);
    return victim != nullptr;
  }

  /// Closes this shard if it is open and idle, and returns true if it was closed. A pinned shard is
  /// closed when its last pin is dropped. If the last pin is dropped during this call, the next
  /// call closes the shard.
  /// REQUIRES: number < num_shards.
  bool close(std::uint64_t number) {
    SHARDWISE_ASSERT(number < num_shards_);
    Slot* const slot = find_slot(number);
    if (slot == nullptr) return false;
    std::unique_ptr<const Shard> victim;  // closed after the lock is released
    const Lock lock(book_->mutex);
    if ((slot->state.load(std::memory_order_relaxed) & Slot::kOpen) == 0) return false;
    slot->state.fetch_or(Slot::kClosing, std::memory_order_relaxed);
    victim = take(*book_, *slot);
    return victim != nullptr;
  }

  /// True if this shard is open and pinned. REQUIRES: number < num_shards.
  bool is_pinned(std::uint64_t number) const noexcept {
    SHARDWISE_ASSERT(number < num_shards_);
    const Slot* const slot = find_slot(number);
    return slot != nullptr && slot->is_pinned();
  }

  ShardPoolStats stats() const {
    const Lock lock(book_->mutex);
    ShardPoolStats now = book_->stats;
    now.looks = book_->queue.looks();
    return now;
  }

 private:
  struct Slot;

  /// The list of open shards. Slots share ownership of it, because a pinned slot may outlive the
  /// pool.
  struct Book {
    void add(Slot& slot) noexcept SHARDWISE_REQUIRES(mutex) {
      slot.is_costly = slot.shard->is_costly();
      queue.add(slot, stats.opened);
      ++stats.opened;
      ++stats.open_shards;
      count(slot, slot.shard->size_bytes());
    }
    void remove(Slot& slot) noexcept SHARDWISE_REQUIRES(mutex) {
      queue.remove(slot);
      ++stats.evicted;
      --stats.open_shards;
      count(slot, -slot.shard->size_bytes());
    }
    /// @param bytes  the change in size; a decrease wraps around.
    void count(const Slot& slot, std::uint64_t bytes) noexcept SHARDWISE_REQUIRES(mutex) {
      stats.open_bytes += bytes;
      if (!slot.is_costly) cheap_bytes += bytes;
    }

    Mutex mutex;
    detail::LruQueue queue SHARDWISE_GUARDED_BY(mutex);
    ShardPoolStats stats SHARDWISE_GUARDED_BY(mutex);
    std::uint64_t cheap_bytes SHARDWISE_GUARDED_BY(mutex) =
        0;  // size of shards that are not costly
  };

  struct Slot : detail::LruEntry {
    explicit Slot(std::shared_ptr<Book> of)
        : LruEntry([](ShardPin* pin) noexcept { delete static_cast<Slot*>(pin); },
                   [](ShardPin* pin) noexcept {
                     std::unique_ptr<const Shard> gone;  // closed after the lock is released
                     Slot& slot = *static_cast<Slot*>(pin);
                     Book& open = *slot.book;
                     const Lock lock(open.mutex);
                     gone = take(open, slot, kPin);
                     return gone != nullptr;
                   }),
          book(std::move(of)) {}

    const std::shared_ptr<Book> book;
    std::unique_ptr<const Shard> shard;  // written only with the book's lock held and kOpen unset
  };
  static constexpr std::size_t kChunkSlots = 64;
  /// The slots of consecutive shards. A slot is null until its shard is opened.
  using Chunk = std::array<std::atomic<Slot*>, kChunkSlots>;

  std::size_t num_chunks() const noexcept { return (num_shards_ + kChunkSlots - 1) / kChunkSlots; }
  template <class Action>
  void for_each_slot(const Action& action) const {
    for (std::size_t i = 0; i < num_chunks(); ++i) {
      Chunk* const chunk = chunks_[i].load(std::memory_order_relaxed);
      if (chunk == nullptr) continue;
      for (std::atomic<Slot*>& slot : *chunk) {
        if (slot.load(std::memory_order_relaxed) != nullptr) action(slot);
      }
    }
  }
  Slot* find_slot(std::uint64_t number) const noexcept {
    SHARDWISE_ASSERT_HOT(number < num_shards_);
    const Chunk* const chunk = chunks_[number / kChunkSlots].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    return (*chunk)[number % kChunkSlots].load(std::memory_order_acquire);
  }
  Slot& make_slot(std::uint64_t number) {
    const Lock lock(book_->mutex);
    std::atomic<Chunk*>& chunk = chunks_[number / kChunkSlots];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      chunk.store(new Chunk{}, std::memory_order_release);
    }
    std::atomic<Slot*>& slot = (*chunk.load(std::memory_order_relaxed))[number % kChunkSlots];
    if (slot.load(std::memory_order_relaxed) == nullptr) {
      auto made = std::make_unique<Slot>(book_);
      made->last_use = clock_.load(std::memory_order_relaxed);
      slot.store(made.release(), std::memory_order_release);
    }
    return *slot.load(std::memory_order_relaxed);
  }

  Handle open(Slot& slot, std::uint64_t number) {
    const detail::OpeningTimer timer;
    Turn turn(*this, slot, number);
    if (Handle opened = turn.wait()) return opened;
    std::unique_ptr<const Shard> shard = opener_(number);
    Handle handle = turn.end(std::move(shard));
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
      for (;;) {
        const auto opening = pool_.opening_.find(number_);
        if (opening == pool_.opening_.end() || opening->second != process_generation()) break;
        pool_.opened_.wait(pool_.book_->mutex, detail::CancelScope::joined({}));
      }
      if (slot_.try_pin()) return Handle(&slot_, slot_.shard.get());
      pool_.opening_[number_] = process_generation();
      process_ = process_generation();
      return {};
    }
    /// Adds the opened shard to the pool.
    Handle end(std::unique_ptr<const Shard>&& shard) {
      const Lock lock(pool_.book_->mutex);
      // After a fork during an opening, another thread of the child may have opened the shard too.
      if (slot_.try_pin()) return Handle(&slot_, slot_.shard.get());
      slot_.shard = std::move(shard);
      slot_.state.fetch_add(Slot::kOpen + Slot::kPin, std::memory_order_release);
      pool_.clock_.fetch_add(1, std::memory_order_relaxed);
      pool_.book_->add(slot_);
      give_up();
      return Handle(&slot_, slot_.shard.get());
    }

   private:
    void give_up() noexcept SHARDWISE_REQUIRES(pool_.book_->mutex) {
      const auto opening = pool_.opening_.find(number_);
      const std::uint64_t own = std::exchange(process_, 0);
      if (opening != pool_.opening_.end() && opening->second == own) pool_.opening_.erase(opening);
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
    if (book_->stats.open_shards > options_.max_shards ||
        book_->stats.open_bytes > options_.max_bytes) {
      victim = drop_one();
    } else if (book_->cheap_bytes > options_.max_cheap_bytes) {
      victim = drop_one(/*may_be_costly=*/false);
    }
    return victim != nullptr;
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
    book.remove(slot);
    return std::move(slot.shard);
  }

  /// Removes the least recently used idle shard from the pool.
  std::unique_ptr<const Shard> drop_one(bool may_be_costly = true,
                                        std::size_t max_pinned = detail::LruQueue::kPinnedLooks)
      SHARDWISE_REQUIRES(book_->mutex) {
    while (detail::LruEntry* const best = book_->queue.least_recent(may_be_costly, max_pinned)) {
      // If take() fails, another thread has pinned the shard in the meantime; look for the next
      // one.
      if (auto victim = take(*book_, static_cast<Slot&>(*best))) return victim;
    }
    return nullptr;
  }

  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  const std::size_t num_shards_;
  const std::shared_ptr<Book> book_ = std::make_shared<Book>();
  // Chunks and slots are added with the book's lock held, and removed by the destructor.
  const std::unique_ptr<std::atomic<Chunk*>[]> chunks_;
  const Opener opener_;
  const ShardPoolOptions options_;
  std::atomic<std::uint64_t> clock_{1};
  Condition opened_;  // signalled after a shard was opened, or failed to open
  // Shards that a thread is opening, with the generation of its process.
  std::unordered_map<std::uint64_t, std::uint64_t> opening_ SHARDWISE_GUARDED_BY(book_->mutex);
};

}  // namespace shardwise
