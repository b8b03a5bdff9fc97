#pragma once

#include <cstdint>

#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

/// The options of ShardedSampler: those of Sharded, and the seed.
struct ShardedOptions {
  std::uint64_t seed = 0;
  std::uint64_t window = kDefaultShardWindow;  ///< shards mixed together
  std::uint64_t streams = 1;
  Order::Tail tail = Order::Tail::kExact;
  SkipList skip{};
};

/// As ChunkedSampler, with whole shards as chunks. Memory: 16 bytes a shard.
class SHARDWISE_EXPORT ShardedSampler final : public SlotSampler {
 public:
  explicit ShardedSampler(const SampleSet& samples, const ShardedOptions& options = {},
                          const RankOptions& ranks = {});
};

/// Sample 0, 1, 2 ..., shared out over the ranks: for evaluation.
class SHARDWISE_EXPORT SequentialSampler final : public SlotSampler {
 public:
  explicit SequentialSampler(const SampleSet& samples, const RankOptions& ranks = {});
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::SequentialSampler;
using detail::ShardedOptions;
using detail::ShardedSampler;
using detail::SlotSampler;
}  // namespace shardwise
