#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwise::detail {

/// Identifies draw number `draw` from data set `dataset`.
struct MixtureDraw {
  std::uint64_t dataset = 0;
  std::uint64_t draw = 0;

  friend bool operator==(const MixtureDraw&, const MixtureDraw&) = default;
};

/// Maps each slot of a mixture by weight to a data set and a draw from that data set. A mixture is
/// a sequence of slots, 0 up to 2^62. The draws from each data set are numbered from 0, and each
/// draw is in exactly one slot. The order of the data set determines the sample of each draw.
///
/// The map is a function of (weights, seed, slot). At every multiple of 256 slots (a block), the
/// number of draws from each data set is as exact as possible. If this number is k for a data set,
/// the slots before that multiple contain its draws 0 to k - 1. Within a block, all 256 draws are
/// in random order.
///
/// Why a tree: the count of a data set must never fall from one slot to the next. A count that is
/// the difference of two rounded running sums could fall. In the tree, the counts of both sides of
/// each node only grow. Why fractions of 2^64: they need one multiplication per node, and no
/// division. Why not a Permutation for each block: if there are many ranks, a rank needs only a few
/// entries of every block. The table of entries is small enough for the CPU's cache.
///
/// Threads: immutable; safe from any thread.
/// Memory: 600 bytes, plus 16 per leaf and 8 per data set.
/// Source: docs/formats/order.md (Mixtures, version 2).
class MixtureDraws {
 public:
  static constexpr unsigned kVersion = 2;
  static constexpr std::uint64_t kBlock = 256;
  static constexpr std::uint64_t kMaxSlots = std::uint64_t{1} << 62;
  static constexpr std::size_t kMaxDatasets = std::size_t{1} << 20;

  /// Cost: O(data sets).
  /// Errors: InvalidArgument for a weight that is negative or not finite, naming `unit` and the
  /// number of the data set; if all weights are 0; for more than kMaxDatasets weights.
  MixtureDraws(std::span<const double> weights, std::uint64_t seed,
               std::string_view unit = "data set");

  std::size_t num_datasets() const noexcept { return shares_.size(); }
  /// Each data set's share of 2^62.
  const std::vector<std::uint64_t>& shares() const noexcept { return shares_; }

  /// Sets dataset[i] and draw[i] to the content of slot first + i * stride.
  /// REQUIRES: both spans have the same size; all slots are below kMaxSlots.
  /// Cost: O(log data sets) per slot, for any stride.
  void locate(std::uint64_t first, std::uint64_t stride, std::span<std::uint32_t> dataset,
              std::span<std::uint64_t> draw) const noexcept;

  /// The draw in `slot`. REQUIRES: slot < kMaxSlots.
  MixtureDraw at(std::uint64_t slot) const noexcept;

  /// The number of draws from `dataset` in all slots before `slot`.
  /// REQUIRES: dataset < num_datasets(), slot <= kMaxSlots.
  /// Cost: O(log data sets), and up to kBlock steps more if `slot` is not a multiple of kBlock.
  std::uint64_t draws_before(std::size_t dataset, std::uint64_t slot) const noexcept;

  /// Returns the slot of draw `draw` from `dataset`, or nullopt if the mixture ends before that
  /// draw, or the data set has weight 0.
  /// REQUIRES: dataset < num_datasets(). Cost: O(log data sets).
  std::optional<std::uint64_t> slot_of(std::size_t dataset, std::uint64_t draw) const noexcept;

  /// The block of the slot that slot_of() returns.
  std::optional<std::uint64_t> block_of(std::size_t dataset, std::uint64_t draw) const noexcept;

  /// Returns the smallest range of whole blocks that contains draws [first, last) of `dataset`, as
  /// a half-open range of slots. The range ends at the end of the mixture. {kMaxSlots, kMaxSlots}
  /// means that the mixture does not contain these draws.
  /// REQUIRES: first < last, dataset < num_datasets().
  std::pair<std::uint64_t, std::uint64_t> slots_of_draws(std::size_t dataset, std::uint64_t first,
                                                         std::uint64_t last) const noexcept;

 private:
  struct Node {
    std::uint64_t ratio = 0;  ///< r in docs/formats/order.md: the left side's share, as a fraction
                              ///< of 2^64
    std::uint64_t phase = 0;  ///< f in docs/formats/order.md
    std::uint64_t left(std::uint64_t x) const noexcept;
  };
  /// The draws of one leaf in one block.
  struct Part {
    std::uint64_t begin;  ///< number of draws before the block
    std::uint64_t end;    ///< number of draws before the next block
    std::uint64_t entry;  ///< the first of the leaf's entries in a block
  };

  std::uint64_t block_key(std::uint64_t block) const noexcept;
  std::uint64_t entry_of(std::uint64_t key, std::uint64_t offset) const noexcept;
  std::uint64_t offset_of(std::uint64_t key, std::uint64_t entry) const noexcept;
  MixtureDraw descend(std::uint64_t block, std::uint64_t entry) const noexcept;
  Part part(std::size_t dataset, std::uint64_t block) const noexcept;

  std::vector<std::uint64_t> shares_;
  std::vector<Node> nodes_;  ///< the inner nodes; nodes_[0] is unused
  unsigned depth_ = 0;       ///< k in docs/formats/order.md: number of levels of the tree
  std::array<std::uint8_t, kBlock> table_;
  std::array<std::uint8_t, kBlock> inverse_;
  std::uint64_t key_begin_;
  std::uint64_t key_step_;
};

}  // namespace shardwise::detail
