#pragma once

#include <cstdint>
#include <memory>

#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "shardwise/order/order.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// Fetches the shards of an epoch into the dataset's cache before they are read, and tells the
/// cache what is needed when, so that what it evicts is what is needed last.
///
///     ShardPrefetcher prefetcher(data, sampler);          // where the sampler stands
///     while (auto i = sampler.next()) {
///       use(data[*i]);
///       prefetcher.reached(sampler.position());
///     }
///
/// Because an order is a pure function, so is which shard is fetched when, and which is evicted for
/// it: what plan_fetches() predicts, however long fetching takes, only earlier. A shard that must
/// be read before it can be evicted is waited for. Threads that fetch ahead and ones that read may
/// overtake each other; that costs an extra fetch now and then.
///
/// Without a cache, with one that is only read, or for orders whose future is not known (resampled
/// ones, and those in chunks of a few samples), it does nothing, and the cache evicts the least
/// recently used shards.
///
/// Threads: makes its own, and joins them; the destructor cancels fetches that are running. The
/// methods are for one thread, but for note_read(). A forked child starts threads of its own when
/// the next use of a shard, or the next epoch, begins or ends. An error in fetching ahead shows
/// when the shard is read.
class SHARDWISE_EXPORT ShardPrefetcher {
 public:
  struct Options {
    /// Shards that this process fetches at once. 0: none is fetched ahead, but the cache knows the
    /// next uses.
    unsigned fetch_threads = 2;
    /// How many uses of shards to look ahead, at most.
    std::uint64_t max_ahead = 32;
    /// The ranks that read at the same time through this cache: those of this node. count 0: only
    /// the sampler's own.
    RankOptions::Range node = {.first = 0, .count = 0};
    /// Where samples are read in any order within windows of so many positions, from the epoch's
    /// beginning, and by any rank (Loader::ByLength): all that a window holds is needed until it
    /// ends. reached() and note_read() then count the samples of all ranks. 0: as the order says.
    std::uint64_t window = 0;
  };

  /// Begins at the place where `sampler` stands; looks ahead across the end of its epoch, too.
  /// Cost: about 0.1 us a chunk for three epochs, and some us a shard.
  ShardPrefetcher(const Dataset& data, const Sampler& sampler);
  ShardPrefetcher(const Dataset& data, const Sampler& sampler, const Options& options);
  ~ShardPrefetcher();
  ShardPrefetcher(const ShardPrefetcher&) = delete;
  ShardPrefetcher& operator=(const ShardPrefetcher&) = delete;

  /// True if the future is known and there is a cache to fetch into.
  [[nodiscard]] bool is_active() const noexcept;

  /// Reports that the first `num_delivered` of the sampler's samples have been read.
  /// Cost: some ns; where a use of a shard ends, some us.
  void reached(std::uint64_t num_delivered);

  /// Reports that the first `num_read` of them have been read, as those of batches in the making,
  /// though they were not all delivered: shards that only they needed may leave a full cache. A
  /// call that says less than one before changes nothing.
  /// Threads: any, beside all other methods but begin_epoch(). Cost: O(log uses).
  void note_read(std::uint64_t num_read) noexcept;

  /// Goes on with another epoch, or another position. Errors: InvalidArgument if `sampler` is of
  /// another order.
  void begin_epoch(const Sampler& sampler);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
