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

// Fills a cache before a job: fetches shards in the order in which the job needs them, until the
// budget is full.

namespace shardwise::detail {

struct SHARDWISE_EXPORT CacheFill {
  struct Options {
    /// The ranks that will read through this cache; a count of 0 means all ranks.
    RankOptions::Range ranks = {.first = 0, .count = 0};
    std::uint64_t epochs = 1;  ///< number of epochs, from the sampler's position on
    std::uint64_t budget_bytes = 0;
  };

  /// A shard that must be cached to be read. Each shard is listed once.
  struct Shard {
    std::size_t part = 0;      ///< number of its part in the MixedDataset
    std::uint64_t number = 0;  ///< its number in the part's index
    std::string name;          ///< CacheAccess::name_of()
    std::uint64_t size_bytes = 0;
    bool fits = false;  ///< fits in the budget together with the preceding shards
  };
  std::vector<Shard> shards;  ///< in the order in which they are needed
  /// False if it cannot be predicted when the order needs each shard. All shards are then listed,
  /// in the order of the index.
  bool is_order_known = true;

  struct Count {
    std::uint64_t shards = 0;
    std::uint64_t bytes = 0;  ///< total size in the cache

    void add(const Shard& shard) noexcept {
      ++shards;
      bytes += shard.size_bytes;
    }
  };
  struct Outcome {
    Count fetched;
    Count present;  ///< shards that were cached, or that another process was fetching
    /// Shards that did not fit, or would have evicted shards needed sooner by other users.
    Count left_out;
  };

  /// Returns the shards that the order needs. Fetches nothing.
  /// Cost: O(chunks + shards).
  /// Errors: Unsupported if the size of a shard is unknown.
  [[nodiscard]] static CacheFill of(const MixedDataset& data, const Sampler& sampler,
                                    const Options& options);

  /// Predicts the outcome of run() with a cache that contains `entries`. Pure.
  [[nodiscard]] Outcome foreseen(const std::vector<ShardCache::Entry>& entries) const;

  /// Fetches the missing shards that fit, on `threads` threads. Posts to the cache's other users
  /// that these shards are needed. Does not evict shards that are needed sooner. Completely fetched
  /// shards stay in the cache, even after an error.
  /// @param progress  called after each shard.
  /// @param outcome   valid even if the call throws.
  /// Errors: as CacheAccess::get(), of the first shard that fails; Cancelled.
  void run(const MixedDataset& data, ShardCache& cache, unsigned threads, const CancelToken& cancel,
           const ProgressCallback& progress, Outcome& outcome) const;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::CacheFill;
}  // namespace shardwise
