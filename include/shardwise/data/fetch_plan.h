#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/order/order.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// The shards that M nodes will fetch.
struct FetchPlan {
  struct Options {
    /// Ranks are dealt to nodes in blocks, as torchrun does: node k of M holds the ranks from k *
    /// world_size / M to before (k + 1) * world_size / M. All ranks of a node share one cache.
    std::uint64_t nodes = 1;
    std::uint64_t cache_bytes = 0;  ///< the budget of each node
    std::uint64_t epochs = 3;       ///< from where the sampler began; caches are empty at first
    /// Where nodes differ and have more uses than this together, only some kinds of nodes, spread
    /// evenly, are simulated: see Node::counts_of. At least one is.
    std::uint64_t max_simulated_uses = 4'000'000;
    /// Stops planning with Cancelled, between two epochs of a node.
    CancelToken cancel = {};
  };

  /// The shards as a cache sees them.
  struct Shards {
    /// First sample of each shard, then the number of samples: one more than there are shards.
    std::vector<std::uint64_t> starts;
    /// Bytes that each takes in a cache: of a compressed shard, when expanded.
    std::vector<std::uint64_t> sizes_bytes;

    /// Those of a data set, also of a view. Cost: some us a shard. Errors: CorruptIndex.
    [[nodiscard]] SHARDWISE_EXPORT static Shards of(const Dataset& data);
    /// The shards of several data sets, one after another.
    [[nodiscard]] SHARDWISE_EXPORT static Shards of(const MixedDataset& data);
    /// `count` shards that are all alike.
    /// Errors: InvalidArgument if there are more than 2^62 samples.
    [[nodiscard]] SHARDWISE_EXPORT static Shards alike(std::uint64_t count,
                                                       std::uint64_t samples_per_shard,
                                                       std::uint64_t bytes_per_shard);
  };

  /// The work of a cache in an epoch.
  struct CacheCounts {
    std::uint64_t uses = 0;           ///< of shards, as EpochSchedule counts them
    std::uint64_t fetches = 0;        ///< uses whose shard was not there
    std::uint64_t bytes_fetched = 0;  ///< by them
    std::uint64_t evictions = 0;
    std::uint64_t bypasses = 0;    ///< fetches that found no room, and were not kept
    std::uint64_t peak_bytes = 0;  ///< the most that was cached

    /// Adds the counts of another epoch; the peak is the higher one.
    SHARDWISE_EXPORT CacheCounts& operator+=(const CacheCounts& other) noexcept;
    friend bool operator==(const CacheCounts&, const CacheCounts&) = default;
  };

  /// The work of a node's cache in an epoch.
  struct NodeEpoch {
    std::uint64_t shards = 0;  ///< different ones that are needed
    std::uint64_t bytes = 0;   ///< of them
    CacheCounts lru;
    CacheCounts next_use;
  };

  /// Nodes that need the same shards at the same slots.
  struct Node {
    std::vector<std::uint64_t> nodes;  ///< ascending
    /// The node that was simulated: nodes[0], or a neighbour of another kind. All but the
    /// CacheCounts is of these nodes in any case.
    std::uint64_t counts_of = 0;
    std::vector<NodeEpoch> epochs;
    std::uint64_t shards = 0;        ///< different ones, in all epochs together
    std::uint64_t bytes = 0;         ///< of them
    std::uint64_t bytes_in_use = 0;  ///< at one time, at most
    /// The cache from which next-use fetches each shard once an epoch, in each of the epochs.
    std::uint64_t bytes_for_once_an_epoch = 0;
    /// The cache from which next-use fetches nothing twice in all the epochs.
    std::uint64_t bytes_for_once = 0;
  };

  Options options;
  std::uint64_t first_epoch = 0;
  std::uint64_t world_size = 0;
  std::uint64_t num_shards = 0;
  std::uint64_t total_bytes = 0;  ///< of all shards
  std::vector<Node> kinds;        ///< by their first node

  /// Nodes whose counts are those of a neighbour.
  [[nodiscard]] SHARDWISE_EXPORT std::uint64_t num_not_simulated() const noexcept;

  /// The counts of all nodes added up; but the peak, the shards and the bytes are those of the node
  /// that needs the most bytes.
  [[nodiscard]] SHARDWISE_EXPORT NodeEpoch total(std::uint64_t epoch) const;
  /// The kind of `node`. REQUIRES: node < options.nodes.
  [[nodiscard]] SHARDWISE_EXPORT const Node& of_node(std::uint64_t node) const;
  /// The largest need of any node.
  [[nodiscard]] SHARDWISE_EXPORT std::uint64_t bytes_for_once_an_epoch() const noexcept;
  [[nodiscard]] SHARDWISE_EXPORT std::uint64_t bytes_for_once() const noexcept;
  [[nodiscard]] SHARDWISE_EXPORT std::uint64_t bytes_in_use() const noexcept;
};

/// A warning for the user if the ranks of a node, in the order of `sampler`, use more bytes of
/// shards at one time than the cache of `data` may hold, so that samples are read one by one, or
/// shards fetched again. Also if the order takes each sample from any shard, as Resampled by sample
/// does, and the cache may not hold them all; the text names an order that would do. Nothing if all
/// is well, if there is no cache, or if the future is not known.
/// @param window  as ShardPrefetcher::Options::window.
/// Cost: about 0.1 us a chunk.
SHARDWISE_EXPORT std::optional<std::string> small_cache_warning(const Dataset& data,
                                                                const Sampler& sampler,
                                                                const RankOptions::Range& node,
                                                                std::uint64_t window = 0);

/// Predicts what the shard caches of a run's nodes fetch in the order of `sampler`, by simulation
/// (src/data/cache_simulation.h). No file is read, so it works for sizes that no machine at hand
/// holds. Nodes that need the same are simulated once.
///
/// The prediction is of fetching on demand in the order of slots, all ranks in step. Its counts are
/// exact if one node holds all ranks and there is one stream. Where a node has only a few samples
/// of a piece of the order (the `window` chunks that are mixed together), it may count shards that
/// none of these happens to be in; the needed shards are never counted too low.
///
/// Cost: O(nodes * (chunks + uses)) an epoch, about 0.1 us a use; and 1 us for each simulated one.
/// 10^5 shards, 1,024 ranks, 128 nodes and 3 epochs take some seconds.
/// Memory: 16 bytes a chunk and 8 a touched shard, for each epoch; and 24 a use of one node.
/// Errors: InvalidArgument: nodes that do not divide the world (the text lists what is valid), no
/// epochs, shards of other samples. Unsupported: the sampler's future is not known; the text says
/// what a cache does then.
SHARDWISE_EXPORT FetchPlan plan_fetches(const Sampler& sampler, const FetchPlan::Shards& shards,
                                        const FetchPlan::Options& options);

}  // namespace shardwise
