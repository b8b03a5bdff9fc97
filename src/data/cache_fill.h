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

// Filling a cache before a job: what an order needs first comes first, until the budget is full.

namespace shardwise::detail {

struct SHARDWISE_EXPORT CacheFill {
  struct Options {
    /// The ranks that will read through this cache; count 0: all.
    RankOptions::Range ranks = {.first = 0, .count = 0};
    std::uint64_t epochs = 1;  ///< from where the sampler stands
    std::uint64_t budget_bytes = 0;
  };

  /// A shard that needs a cache, each once.
  struct Shard {
    std::size_t part = 0;      ///< of the MixedDataset
    std::uint64_t number = 0;  ///< in the part's index
    std::string name;          ///< CacheAccess::name_of()
    std::uint64_t size_bytes = 0;
    bool fits = false;  ///< in the budget, together with those before it
  };
  std::vector<Shard> shards;  ///< in the order in which they are needed
  /// False: it cannot be known when this order needs which shard. Then all shards are here, in the
  /// order of the index.
  bool is_order_known = true;

  struct Count {
    std::uint64_t shards = 0;
    std::uint64_t bytes = 0;  ///< as they lie in the cache

    void add(const Shard& shard) noexcept {
      ++shards;
      bytes += shard.size_bytes;
    }
  };
  struct Outcome {
    Count fetched;
    Count present;   ///< were there, or another process was fetching them
    Count left_out;  ///< did not fit, or would have cost shards that others need sooner
  };

  /// What the order needs, of which nothing is fetched yet. Cost: about 0.1 us a chunk and some us
  /// a shard. Errors: Unsupported if the size of a shard is not known.
  [[nodiscard]] static CacheFill of(const MixedDataset& data, const Sampler& sampler,
                                    const Options& options);

  /// What run() would do with a cache that holds `entries`. Pure.
  [[nodiscard]] Outcome foreseen(const std::vector<ShardCache::Entry>& entries) const;

  /// Fetches what fits and is not there, `threads` shards at once, and tells the other users of the
  /// cache meanwhile that it is needed. Costs no shard that is needed sooner. Whatever ends it, the
  /// shards that came whole stay.
  /// @param progress  is told after each shard.
  /// @param outcome   is right also when this throws.
  /// Errors: as CacheAccess::get(), of the first shard that fails; Cancelled.
  void run(const MixedDataset& data, ShardCache& cache, unsigned threads, const CancelToken& cancel,
           const ProgressCallback& progress, Outcome& outcome) const;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::CacheFill;
}  // namespace shardwise
