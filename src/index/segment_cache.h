#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fork.h"
#include "index/offset_table.h"

namespace shardwise::detail {

/// The segments of a table. Each is checked on first access.
/// Threads: safe concurrently.
class SegmentCache {
 public:
  explicit SegmentCache(std::size_t num_segments) : checked_(num_segments), views_(num_segments) {}

  /// @param check  returns the segment after checking it; may throw.
  /// REQUIRES: segment is less than the number of segments.
  template <class Check>
  [[nodiscard]] const SegmentView& of(std::uint64_t segment, const Check& check) {
    if (!checked_[segment].load(std::memory_order_acquire)) keep(segment, check());
    return views_[segment];
  }

 private:
  void keep(std::uint64_t segment, const SegmentView& view) {
    const Lock lock(mutex_);
    if (!checked_[segment].load(std::memory_order_relaxed)) views_[segment] = view;
    checked_[segment].store(true, std::memory_order_release);
  }

  Mutex mutex_;
  std::vector<std::atomic<bool>> checked_;
  std::vector<SegmentView> views_;  // views_[i] is written under mutex_, before checked_[i] is set
};

}  // namespace shardwise::detail
