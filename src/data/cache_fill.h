#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/base/progress.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/order/order.h"
#include "shardwise/order/sampler.h"
#include "shardwise/storage/shard_cache.h"

// Filling a cache before a job: fetches shards in the order of need until the budget is full.

namespace shardwise::detail {

struct SHARDWISE_EXPORT CacheFill {
  struct Options {
    /// The ranks that will read through this cache; a count of 0 means all.
    RankOptions::Range ranks = {.first = 0, .count = 0};
    std::uint64_t epochs = 1;  ///< from the sampler's position
    std::uint64_t budget_bytes = 0;
  };

  /// A shard that needs a cache, listed once.
  struct Shard {
    std::size_t part = 0;      ///< of the MixedDataset
    std::uint64_t number = 0;  ///< in the part's index
    std::string name;          ///< CacheAccess::name_of()
    std::uint64_t size_bytes = 0;
    bool fits = false;  ///< in the budget, together with those before it
  };
  std::vector<Shard> shards;  ///< in the order in which they are needed
  /// False if the order's needs cannot be predicted. Then all shards are listed, in the order of
  /// the index.
  bool is_order_known = true;

  struct Count {
    std::uint64_t shards = 0;
    std::uint64_t bytes = 0;  ///< size in the cache

    void add(const Shard& shard) noexcept {
      ++shards;
      bytes += shard.size_bytes;
    }
  };
  struct Outcome {
    Count fetched;
    Count present;   ///< were cached, or another process was fetching them
    Count left_out;  ///< did not fit, or would have evicted shards that others need sooner
  };

  /// The shards that the order needs. Fetches nothing.
  /// Cost: O(chunks + shards).
  /// Errors: Unsupported if the size of a shard is unknown.
  [[nodiscard]] static CacheFill of(const MixedDataset& data, const Sampler& sampler,
                                    const Options& options);

  /// The outcome of run() with a cache that contains `entries`. Pure.
  [[nodiscard]] Outcome foreseen(const std::vector<ShardCache::Entry>& entries) const;

  /// Fetches the missing shards that fit, `threads` at a time, and posts to the cache's other users
  /// that they are needed. Evicts no shard that is needed sooner. Shards that were fetched
  /// completely are kept, even after an error.
  /// @param progress  called after each shard.
  /// @param outcome   valid even if this throws.
  /// Errors: as CacheAccess::get(), of the first shard that fails; Cancelled.
  void run(const MixedDataset& data, ShardCache& cache, unsigned threads, const CancelToken& cancel,
           const ProgressCallback& progress, Outcome& outcome) const;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::CacheFill;
}  // namespace shardwise
