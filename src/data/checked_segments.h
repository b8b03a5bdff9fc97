#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "index/segment_cache.h"
#include "index/segment_of.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

/// The records of an index's shards. Each shard's records are checked on first access. Shards are
/// not opened.
/// Threads: safe concurrently.
class CheckedSegments {
 public:
  explicit CheckedSegments(std::shared_ptr<const Index> index)
      : index_(std::move(index)), cache_(index_->num_shards()) {}

  /// REQUIRES: shard is less than the number of shards.
  /// Errors: CorruptIndex.
  /// Cost: O(1); O(members) on the first access to a shard.
  [[nodiscard]] const SegmentView& of(std::uint64_t shard) {
    return cache_.of(shard, [&] { return segment_of(*index_, shard); });
  }
  [[nodiscard]] const Index& index() const noexcept { return *index_; }

 private:
  const std::shared_ptr<const Index> index_;
  SegmentCache cache_;
};

}  // namespace shardwise::detail
