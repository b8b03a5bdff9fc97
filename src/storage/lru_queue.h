#pragma once

#include <atomic>
#include <boost/intrusive/set.hpp>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "storage/shard_handle.h"

namespace shardwise::detail {

/// An open shard of a pool, as LruQueue orders it. All members except `last_use` are guarded by the
/// pool's lock.
struct LruEntry
    : ShardPin,
      boost::intrusive::set_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>> {
  using ShardPin::ShardPin;

  struct Order {
    std::uint64_t use = 0;
    std::uint64_t opening = 0;  ///< the earlier opened of two shards with the same use comes first
    friend auto operator<=>(const Order&, const Order&) = default;
  };

  /// Set by readers without a lock.
  std::atomic<std::uint64_t> last_use{0};
  Order order;
  void* queue = nullptr;  ///< the set that contains this entry, or null
  bool is_costly = false;
};

/// Finds the least recently used idle shard of a pool without a scan of all open shards.
///
/// Readers pin and use shards without a lock, so an entry's position is only a lower bound of its
/// last use. The queue corrects the position of an entry when it becomes the first. A pinned entry
/// that becomes the first moves to a separate set. Each search checks a few entries of that set, so
/// that all are checked in turn.
///
/// Threads: guarded by the caller's lock, except for pins and LruEntry::last_use.
/// Cost: O(log n) for each opening, for each closing, and for each shard that was used since the
///   last opening.
class LruQueue {
 public:
  /// Number of pinned shards that one search looks at, unless all are asked for.
  static constexpr std::size_t kPinnedLooks = 16;

  /// REQUIRES: the entry is in no queue. `is_costly` is set.
  void add(LruEntry& entry, std::uint64_t opening) noexcept {
    entry.order.opening = opening;
    insert_by_use(entry);
  }
  void remove(LruEntry& entry) noexcept { take_out(entry); }
  void clear() noexcept {
    cheap_.clear();
    costly_.clear();
    pinned_.clear();
  }

  /// Returns the least recently used idle entry, a cheap one if there is any. Returns null if all
  /// are pinned. May also return null if the separate set has more than `max_pinned` entries,
  /// because the search then checks only some of them.
  LruEntry* least_recent(bool may_be_costly, std::size_t max_pinned = kPinnedLooks) noexcept {
    recheck_pinned(max_pinned);
    for (Set* set : {&cheap_, &costly_}) {
      if (set == &costly_ && !may_be_costly) break;
      while (!set->empty()) {
        LruEntry& first = *set->begin();
        ++looks_;
        if (first.is_pinned()) {
          take_out(first);
          insert_pinned(first);
        } else if (first.last_use.load(std::memory_order_relaxed) != first.order.use) {
          take_out(first);
          insert_by_use(first);
        } else {
          return &first;
        }
      }
    }
    return nullptr;
  }

  /// Number of entries that all searches together have looked at.
  std::uint64_t looks() const noexcept { return looks_; }

 private:
  struct OrderOf {
    using type = LruEntry::Order;
    const type& operator()(const LruEntry& entry) const noexcept { return entry.order; }
  };
  using Set = boost::intrusive::set<LruEntry, boost::intrusive::key_of_value<OrderOf>,
                                    boost::intrusive::constant_time_size<false>>;

  void insert(Set& set, LruEntry& entry) noexcept {
    set.insert(entry);  // orders are unique, because each opening has its own number
    entry.queue = &set;
  }
  void insert_by_use(LruEntry& entry) noexcept {
    entry.order.use = entry.last_use.load(std::memory_order_relaxed);
    insert(entry.is_costly ? costly_ : cheap_, entry);
  }
  /// Sorts pinned entries by the time at which a search for a victim passed over them.
  void insert_pinned(LruEntry& entry) noexcept {
    entry.order.use = looks_;
    insert(pinned_, entry);
  }
  static void take_out(LruEntry& entry) noexcept {
    Set& set = *static_cast<Set*>(entry.queue);
    set.erase(set.iterator_to(entry));
    entry.queue = nullptr;
  }
  void recheck_pinned(std::size_t max_looks) noexcept {
    const std::uint64_t looks_before = looks_;
    for (std::size_t i = 0; i < max_looks && !pinned_.empty(); ++i) {
      LruEntry& first = *pinned_.begin();
      if (first.order.use > looks_before) return;  // this search has checked all
      ++looks_;
      take_out(first);
      if (first.is_pinned()) {
        insert_pinned(first);
      } else {
        insert_by_use(first);
      }
    }
  }

  Set cheap_;
  Set costly_;
  Set pinned_;
  std::uint64_t looks_ = 0;
};

}  // namespace shardwise::detail
