#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace shardwise::detail {

/// Draw number `draw` from data set `dataset`.
struct MixtureDraw {
  std::uint64_t dataset = 0;
  std::uint64_t draw = 0;

  friend bool operator==(const MixtureDraw&, const MixtureDraw&) = default;
};

/// Which draw of which data set is in each slot of a mixture by weight. A mixture is an endless row
/// of slots, 0 up to 2^62; the draws from each data set are numbered from 0, and each of them is in
/// exactly one slot. Which sample a draw is, is up to the order of its data set.
///
/// A function of (weights, seed, slot), which docs/formats/order.md specifies (Mixtures, version
/// 2). At every border of blocks of 256 slots the counts are exact, and what comes before it is,
/// for each data set, all draws below a number. Within a block the draws of one data set come in
/// permuted order, and the count of a data set so far is that of a random order of the block's 256
/// draws.
///
/// Why a tree: floors of running sums alone would give a data set now more, now less than it had
/// before, since both ends of its part move. Here both sides of each node only grow. Why fractions
/// of 2^64: one multiplication a node, no division. Why not Permutation for each block: a rank of
/// many wants a few entries of every block, and one table stays in the cache.
///
/// Threads: immutable; safe from any thread.
/// Memory: 600 bytes, 16 a leaf, 8 a data set.
class MixtureDraws {
 public:
  static constexpr unsigned kVersion = 2;
  static constexpr std::uint64_t kBlock = 256;
  static constexpr std::uint64_t kMaxSlots = std::uint64_t{1} << 62;
  static constexpr std::size_t kMaxDatasets = std::size_t{1} << 20;

  /// Cost: about 50 ns a data set.
  /// Errors: InvalidArgument: a weight that is negative or not finite, naming the data set; all
  ///   weights 0; more than kMaxDatasets.
  MixtureDraws(std::span<const double> weights, std::uint64_t seed);

  std::size_t num_datasets() const noexcept { return shares_.size(); }
  /// Each data set's share of 2^62.
  const std::vector<std::uint64_t>& shares() const noexcept { return shares_; }

  /// dataset[i], draw[i] = what is in slot first + i * stride.
  /// REQUIRES: both of one size; all slots below kMaxSlots.
  /// Cost: about 14, 20, 30, 70 ns a slot for 2, 3, 16, 1000 data sets, whatever the stride.
  void locate(std::uint64_t first, std::uint64_t stride, std::span<std::uint32_t> dataset,
              std::span<std::uint64_t> draw) const noexcept;

  /// The draw in `slot`. REQUIRES: slot < kMaxSlots.
  MixtureDraw at(std::uint64_t slot) const noexcept;

  /// Draws from `dataset` in all slots before `slot`.
  /// REQUIRES: dataset < num_datasets(), slot <= kMaxSlots.
  /// Cost: about 30 ns at a border of blocks, elsewhere up to 2 us.
  std::uint64_t draws_before(std::size_t dataset, std::uint64_t slot) const noexcept;

  /// The slot of draw `draw` from `dataset`; nothing if the mixture ends before it, or the data set
  /// has no weight. REQUIRES: dataset < num_datasets(). Cost: 35 ns, 60 ns for 16 data sets.
  std::optional<std::uint64_t> slot_of(std::size_t dataset, std::uint64_t draw) const noexcept;

  /// The block of that slot.
  std::optional<std::uint64_t> block_of(std::size_t dataset, std::uint64_t draw) const noexcept;

  /// The blocks that hold draws [first, last) of `dataset`, as a half-open range of slots: the
  /// least range of whole blocks. It ends with the mixture; {kMaxSlots, kMaxSlots} is nowhere.
  /// REQUIRES: first < last, dataset < num_datasets().
  std::pair<std::uint64_t, std::uint64_t> slots_of_draws(std::size_t dataset, std::uint64_t first,
                                                         std::uint64_t last) const noexcept;

 private:
  struct Node {
    std::uint64_t ratio = 0;  ///< r
    std::uint64_t phase = 0;  ///< f
    std::uint64_t left(std::uint64_t x) const noexcept;
  };
  /// The draws of one leaf in one block.
  struct Part {
    std::uint64_t begin;  ///< draws before the block
    std::uint64_t end;    ///< draws before the next
    std::uint64_t entry;  ///< where its part of the list begins
  };

  std::uint64_t block_key(std::uint64_t block) const noexcept;
  std::uint64_t entry_of(std::uint64_t key, std::uint64_t offset) const noexcept;
  std::uint64_t offset_of(std::uint64_t key, std::uint64_t entry) const noexcept;
  MixtureDraw descend(std::uint64_t block, std::uint64_t entry) const noexcept;
  Part part(std::size_t dataset, std::uint64_t block) const noexcept;

  std::vector<std::uint64_t> shares_;
  std::vector<Node> nodes_;  ///< the inner ones; nodes_[0] is none
  unsigned depth_ = 0;       ///< k
  std::array<std::uint8_t, kBlock> table_;
  std::array<std::uint8_t, kBlock> inverse_;
  std::uint64_t key_begin_;
  std::uint64_t key_step_;
};

}  // namespace shardwise::detail
