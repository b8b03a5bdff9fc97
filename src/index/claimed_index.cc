#include "index/claimed_index.h"

#include <utility>

#include "index/shard_hints.h"

namespace shardwise::detail {

ClaimedNumbering::ClaimedNumbering(std::vector<ClaimedShard> shards) : shards_(std::move(shards)) {
  directory_.reserve(shards_.size() + 1);
  std::uint64_t num_samples = 0;
  for (const ClaimedShard& shard : shards_) {
    directory_.push_back({0, num_samples, 0});
    num_samples += shard.num_samples;
  }
  directory_.push_back({0, num_samples, 0});
  hint_shift_ = hint_shift_for(num_samples, shards_.size());
  hints_ = make_hints(directory_, hint_shift_);
}

Index::Shard ClaimedNumbering::shard(std::uint64_t shard) const {
  const ClaimedShard& claimed = shards_[shard];
  Index::Shard info;
  info.number = shard;
  info.path = claimed.path;
  info.url = claimed.path;
  info.size_bytes = claimed.size_bytes;
  info.expanded_bytes = claimed.size_bytes;
  info.first_sample = directory_[shard].first_sample;
  info.num_samples = claimed.num_samples;
  return info;
}

}  // namespace shardwise::detail
