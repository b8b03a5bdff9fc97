#pragma once

#include <cstdint>
#include <memory>

#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "shardwise/order/order.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// Fetches the shards of an epoch into the dataset's cache before they are read. It also tells the
/// cache when each shard is needed next, so that the cache evicts the shard needed last.
///
///     ShardPrefetcher prefetcher(data, sampler);          // begins where the sampler is
///     while (auto i = sampler.next()) {
///       use(data[*i]);
///       prefetcher.reached(sampler.position());
///     }
///
/// Fetches and evictions follow from the order alone, like in plan_fetches(), however long fetches
/// take. A shard that must be read before it can be evicted is waited for. If fetching and reading
/// threads overtake each other, an extra fetch may be needed.
///
/// A prefetcher does nothing without a cache, with a read-only cache, or if the order's future is
/// unknown. The future of resampled orders and of chunks of a few samples is unknown. The cache
/// then evicts the least recently used shards.
///
/// Threads: starts its own and joins them. The destructor cancels running fetches. Call all methods
///   except note_read() from one thread.
/// Processes: a forked child starts its own threads when a use of a shard or an epoch next begins
///   or ends.
/// Errors: an error in a fetch is thrown when the shard is read.
class SHARDWISE_EXPORT ShardPrefetcher {
 public:
  struct Options {
    /// Shards that this process fetches at once. With 0 it fetches none ahead, but still tells the
    /// cache the next uses.
    unsigned fetch_threads = 2;
    /// The largest number of uses of shards to look ahead.
    std::uint64_t max_ahead = 32;
    /// The ranks that read through this cache at the same time, i.e. those of this node. Count 0
    /// means the sampler's rank only.
    RankOptions::Range node = {.first = 0, .count = 0};
    /// Size in positions of windows within which any rank may read samples in any order
    /// (Loader::ByLength), counted from the beginning of the epoch. All shards of a window are
    /// needed until it ends. reached() and note_read() then count the samples of all ranks. 0 means
    /// no windows.
    std::uint64_t window = 0;
  };

  /// Begins at the current position of `sampler`. Looks ahead beyond the end of its epoch.
  /// Cost: O(chunks) for three epochs, and O(shards).
  ShardPrefetcher(const Dataset& data, const Sampler& sampler);
  ShardPrefetcher(const Dataset& data, const Sampler& sampler, const Options& options);
  ~ShardPrefetcher();
  ShardPrefetcher(const ShardPrefetcher&) = delete;
  ShardPrefetcher& operator=(const ShardPrefetcher&) = delete;

  /// True if there is a cache to fetch into and the order's future is known.
  [[nodiscard]] bool is_active() const noexcept;

  /// Reports that the first `num_delivered` of the sampler's samples have been read.
  /// Cost: O(1); more when a use of a shard ends.
  void reached(std::uint64_t num_delivered);

  /// Reports that the first `num_read` samples have been read, though not all were delivered, e.g.
  /// for batches in the making. Shards that only these samples needed may then be evicted. A call
  /// with a smaller number than before has no effect.
  /// Threads: any, concurrently with all methods except begin_epoch(). Cost: O(log uses).
  void note_read(std::uint64_t num_read) noexcept;

  /// Continues with another epoch or another position.
  /// Errors: InvalidArgument if `sampler` has another order.
  void begin_epoch(const Sampler& sampler);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
