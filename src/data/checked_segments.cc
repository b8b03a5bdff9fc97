#include "data/checked_segments.h"

#include <utility>

#include "index/segment_of.h"

namespace shardwise::detail {

CheckedSegments::CheckedSegments(std::shared_ptr<const Index> index)
    : index_(std::move(index)), checked_(index_->num_shards()), views_(index_->num_shards()) {}

const SegmentView& CheckedSegments::check(std::uint64_t shard) {
  const SegmentView view = segment_of(*index_, shard);
  const Lock lock(mutex_);
  if (!checked_[shard].load(std::memory_order_relaxed)) views_[shard] = view;
  checked_[shard].store(true, std::memory_order_release);
  return views_[shard];
}

}  // namespace shardwise::detail
