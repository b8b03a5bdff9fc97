#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/fork.h"
#include "index/offset_table.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

/// The records of an index's shards. Each shard's records are checked on first access. Shards are
/// not opened.
/// Threads: safe concurrently.
class SHARDWISE_EXPORT CheckedSegments {
 public:
  explicit CheckedSegments(std::shared_ptr<const Index> index);

  /// REQUIRES: shard is less than the number of shards.
  /// Errors: CorruptIndex.
  /// Cost: O(1); O(members) on the first access to a shard.
  [[nodiscard]] const SegmentView& of(std::uint64_t shard) {
    return checked_[shard].load(std::memory_order_acquire) ? views_[shard] : check(shard);
  }
  [[nodiscard]] const Index& index() const noexcept { return *index_; }

 private:
  const SegmentView& check(std::uint64_t shard);

  const std::shared_ptr<const Index> index_;
  Mutex mutex_;
  std::vector<std::atomic<bool>> checked_;
  std::vector<SegmentView> views_;  // views_[i] is written under mutex_, before checked_[i] is set
};

}  // namespace shardwise::detail
