#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "shardwise/order/order.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// Fetches the shards of an epoch into the dataset's cache before they are read. It also tells the
/// cache when each shard is needed next, so that the cache evicts the shard whose next use is
/// farthest away.
///
///     ShardPrefetcher prefetcher(data, sampler);          // begins where the sampler is
///     while (auto i = sampler.next()) {
///       use(data[*i]);
///       prefetcher.reached(sampler.position());
///     }
///
/// The order alone determines fetches and evictions, as in plan_fetches(). The duration of fetches
/// has no influence: the prefetcher evicts a shard only after it has been read. If fetching and
/// reading threads overtake each other, a shard may be fetched again.
///
/// In a join, the shards of a joined dataset are fetched into the cache of that dataset. They are
/// not fetched ahead if a shard of the first dataset needs more than 8 of them on average.
///
/// A prefetcher does nothing without a cache, with a read-only cache, or if the order's future is
/// unknown. The future of resampled orders and of chunks of a few samples is unknown. Without an
/// active prefetcher, the cache evicts the least recently used shards.
///
/// Threads: it starts threads, and its destructor cancels their fetches and joins them. Call all
///   methods except note_read() from one thread.
/// Processes: a forked child starts its own threads when a use of a shard, or an epoch, next begins
///   or ends.
/// Errors: an error in a fetch is thrown when the shard is read.
class SHARDWISE_EXPORT ShardPrefetcher {
 public:
  struct Options {
    /// Number of shards that this process fetches concurrently. With 0 it fetches no shard ahead,
    /// but still tells the cache the next uses.
    unsigned fetch_threads = 2;
    /// The largest number of uses of shards to look ahead.
    std::uint64_t max_ahead = 32;
    /// The ranks that read through this cache at the same time, i.e. the ranks of this node. A
    /// count of 0 means only the sampler's rank.
    RankOptions::Range node = {.first = 0, .count = 0};
    /// Size of windows, in positions from the beginning of the epoch. Within a window, any rank may
    /// read samples in any order (Loader::ByLength), so all shards of a window are needed until it
    /// ends. With windows, reached() and note_read() count the samples of all ranks. 0 means no
    /// windows.
    std::uint64_t window = 0;
  };

  /// Begins at the current position of `sampler`. The prefetcher looks ahead beyond the end of the
  /// epoch.
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

  /// Reports that the first `num_read` samples have been read, but not all delivered: e.g. samples
  /// of batches that are not complete. Shards that only these samples need may then be evicted. A
  /// call with a smaller number than an earlier call has no effect.
  /// Threads: any, concurrently with all methods except begin_epoch(). Cost: O(log uses).
  void note_read(std::uint64_t num_read) noexcept;

  /// Continues with the epoch and position of `sampler`.
  void begin_epoch(const Sampler& sampler);

 private:
  struct Impl;
  std::vector<std::unique_ptr<Impl>> parts_;  // of the dataset, and of those joined to it
};

}  // namespace shardwise
