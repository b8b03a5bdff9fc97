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

/// A prediction of the shards that the nodes of a run fetch.
struct FetchPlan {
  struct Options {
    /// Number of nodes. Ranks are assigned to nodes in blocks, as torchrun does: of M nodes, node k
    /// has ranks [k * world_size / M, (k + 1) * world_size / M). All ranks of a node share one
    /// cache.
    std::uint64_t nodes = 1;
    std::uint64_t cache_bytes = 0;  ///< the budget of each node's cache
    /// Number of simulated epochs, from where the sampler began. The caches are empty at first.
    std::uint64_t epochs = 3;
    /// Largest number of simulated uses of shards, over all nodes. If there are more, only some
    /// kinds of nodes are simulated: at least one kind, spread evenly. See Node::counts_of.
    std::uint64_t max_simulated_uses = 4'000'000;
    /// Makes planning throw Cancelled between two epochs of a node.
    CancelToken cancel = {};
  };

  /// The shards from the cache's point of view.
  struct Shards {
    /// First sample of each shard, then the number of samples: one element more than there are
    /// shards.
    std::vector<std::uint64_t> starts;
    /// Bytes of each shard in a cache. For a compressed shard this is the expanded size.
    std::vector<std::uint64_t> sizes_bytes;

    /// The shards of a data set or a view. Cost: O(shards). Errors: CorruptIndex.
    [[nodiscard]] SHARDWISE_EXPORT static Shards of(const Dataset& data);
    /// The shards of several data sets, one data set after another.
    [[nodiscard]] SHARDWISE_EXPORT static Shards of(const MixedDataset& data);
    /// Returns `count` equal shards.
    /// Errors: InvalidArgument if there are more than 2^62 samples.
    [[nodiscard]] SHARDWISE_EXPORT static Shards alike(std::uint64_t count,
                                                       std::uint64_t samples_per_shard,
                                                       std::uint64_t bytes_per_shard);
  };

  /// The work of a cache in one epoch.
  struct CacheCounts {
    /// Uses of shards. A use is an interval of slots in which the node needs the shard.
    std::uint64_t uses = 0;
    std::uint64_t fetches = 0;        ///< uses that were cache misses
    std::uint64_t bytes_fetched = 0;  ///< by these fetches
    std::uint64_t evictions = 0;
    std::uint64_t bypasses = 0;    ///< fetches whose shard found no room and was not cached
    std::uint64_t peak_bytes = 0;  ///< the largest size of the cache's content

    /// Adds the counts of another epoch. The peak becomes the higher of the two.
    SHARDWISE_EXPORT CacheCounts& operator+=(const CacheCounts& other) noexcept;
    friend bool operator==(const CacheCounts&, const CacheCounts&) = default;
  };

  /// The work of a node's cache in one epoch.
  struct NodeEpoch {
    std::uint64_t shards = 0;  ///< distinct shards that are needed
    std::uint64_t bytes = 0;   ///< of these shards
    /// Counts with LRU eviction.
    CacheCounts lru;
    /// Counts if the shard whose next use is farthest away is evicted, as ShardCache does with a
    /// ShardPrefetcher.
    CacheCounts next_use;
  };

  /// A kind of node: nodes that need the same shards at the same slots. Slots count the samples
  /// that all ranks deliver: rank r of W delivers its sample i in slot i * W + r.
  struct Node {
    std::vector<std::uint64_t> nodes;  ///< ascending
    /// The node whose simulation gave the CacheCounts: nodes[0], or a node of another kind if this
    /// kind was not simulated. All other members are always those of this kind.
    std::uint64_t counts_of = 0;
    std::vector<NodeEpoch> epochs;
    std::uint64_t shards = 0;        ///< distinct shards over all epochs
    std::uint64_t bytes = 0;         ///< of these shards
    std::uint64_t bytes_in_use = 0;  ///< peak of the bytes in use at one time
    /// Smallest cache with which next-use eviction fetches each shard once per epoch.
    std::uint64_t bytes_for_once_an_epoch = 0;
    /// Smallest cache with which next-use eviction fetches no shard twice in all epochs.
    std::uint64_t bytes_for_once = 0;
  };

  Options options;
  std::uint64_t first_epoch = 0;
  std::uint64_t world_size = 0;
  std::uint64_t num_shards = 0;
  std::uint64_t total_bytes = 0;  ///< of all shards
  std::vector<Node> kinds;        ///< sorted by first node

  /// Number of nodes that were not simulated. Their counts are those of a node of another kind; see
  /// Node::counts_of.
  [[nodiscard]] SHARDWISE_EXPORT std::uint64_t num_not_simulated() const noexcept;

  /// Counts summed over all nodes. The peak, the shards and the bytes are those of the node that
  /// needs the most bytes.
  [[nodiscard]] SHARDWISE_EXPORT NodeEpoch total(std::uint64_t epoch) const;
  /// The kind of `node`. REQUIRES: node < options.nodes.
  [[nodiscard]] SHARDWISE_EXPORT const Node& of_node(std::uint64_t node) const;
  /// The largest value of any node.
  [[nodiscard]] SHARDWISE_EXPORT std::uint64_t bytes_for_once_an_epoch() const noexcept;
  [[nodiscard]] SHARDWISE_EXPORT std::uint64_t bytes_for_once() const noexcept;
  [[nodiscard]] SHARDWISE_EXPORT std::uint64_t bytes_in_use() const noexcept;
};

/// Returns a warning for the user if the cache of `data` is too small for the order of `sampler`.
/// Otherwise returns nothing.
///
/// The cache is too small if the ranks of a node use more bytes of shards at one time than its
/// budget. Samples are then read one by one, or shards are fetched again. If the order draws each
/// sample from any shard, as Resampled by sample does, the cache must have room for all shards. The
/// text recommends a better order. Without a cache, or if the order's future is unknown, the result
/// is nothing.
/// @param window  see ShardPrefetcher::Options::window.
/// Cost: O(chunks).
SHARDWISE_EXPORT std::optional<std::string> small_cache_warning(const Dataset& data,
                                                                const Sampler& sampler,
                                                                const RankOptions::Range& node,
                                                                std::uint64_t window = 0);

/// Returns a warning for the user if each rank of `sampler` opens nearly as many shards as it reads
/// samples. This happens if many ranks share a stream: every rank then reads a few samples of every
/// shard. Otherwise returns nothing. Small epochs, in which a rank opens less than 1,000 shards,
/// and orders that read single samples anyway get no warning.
/// @param num_shards  number of shards of the data.
SHARDWISE_EXPORT std::optional<std::string> shared_stream_warning(const Sampler& sampler,
                                                                  std::uint64_t num_shards);

/// Simulates the shard caches of a run's nodes to predict their fetches in the order of `sampler`.
/// It reads no files, so it also works for data sets that do not exist yet. Nodes that need the
/// same shards at the same slots are simulated once.
///
/// The prediction assumes that shards are fetched on demand in the order of slots, and that all
/// ranks are in step. With one node and one stream, the counts are exact up to the first epoch with
/// bypasses. If a node has only a few samples of a window, the prediction may count shards that
/// contain none of these samples. It never counts too few shards.
///
/// Cost: O(nodes * (chunks + uses)) per epoch, and simulation time for each use up to
///   max_simulated_uses.
/// Memory: per epoch 16 bytes per chunk and 8 per touched shard, and 24 per use of one node.
/// Errors: InvalidArgument if the nodes do not divide world_size (the text lists valid numbers).
///   InvalidArgument if Options::epochs is 0, or if `shards` and `sampler` differ in their number
///   of samples. Unsupported if the order's future is unknown; the text says how a cache then
///   behaves.
SHARDWISE_EXPORT FetchPlan plan_fetches(const Sampler& sampler, const FetchPlan::Shards& shards,
                                        const FetchPlan::Options& options);

}  // namespace shardwise
