#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "order/shard_use.h"
#include "order/strided_range.h"
#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

class KeptSlots;

/// The times at which each shard is needed in one epoch. A shard cache uses it to plan ahead. This
/// is possible because the order is a pure function.
///
///     const auto schedule = ShardSchedule::of(sampler, starts);       // the epoch of `sampler`
///     const auto node = schedule->uses({.first = 8, .count = 8});     // of its ranks 8 to 15
///
/// Units: time is counted in delivered slots. Rank r of W delivers its sample i in slot i * W + r.
/// Slots and i count from the point where the sampler began. For a whole epoch in which no samples
/// are left out, slots are the positions of resume tokens. Replicas deliver in the same slots.
///
/// Guarantees for the uses of a node:
///
/// - The node delivers each of its samples in a slot within a use of the sample's shard.
/// - Each use [begin, end) of a shard has a reason: these slots deliver a piece with samples of the
///   shard, and the node delivers at least one of the slots. A piece is the part of one group that
///   is in one stream. A group is the `window` chunks that are shuffled together, one shard in a
///   sequential order, or one chunk for wids. Pieces are not divided: a shard with only a few
///   samples in a piece counts as used during the whole piece, even if other ranks deliver these
///   samples. With one node and one stream, every listed shard is needed.
/// - In a mixture, a piece extends from the block of 256 slots with its first sample to the block
///   with its last sample. With balanced bytes, uses are whole steps.
/// - Pieces of a shard that are adjacent or overlap are one use. Uses are sorted by begin, then by
///   shard.
/// - With Order::Tail::kPad, each slot that repeats a sample is a piece. With balanced bytes, its
///   use is the whole last step.
///
/// The future is unknown for resampled orders, and for orders that touch more than `max_touches`
/// pieces of shards. (With chunks of a few samples, every shard is needed all the time.) With
/// balanced bytes the future is unknown for a part of the ranks.
///
/// Threads: immutable; safe from any thread.
/// Memory: 40 bytes per piece, and 8 per pair of a piece and a shard.
class SHARDWISE_EXPORT ShardSchedule {
 public:
  static constexpr std::uint64_t kDefaultMaxTouches = std::uint64_t{1} << 23;

  /// Returns the schedule of the current epoch of `sampler`, from the point where the sampler
  /// began, for any of its ranks. Returns nullopt if the future is unknown.
  /// @param shard_starts  the first sample of each shard, then the number of samples; shards may be
  ///                      empty.
  /// Cost: O(chunks + touches); never O(samples).
  /// Errors: InvalidArgument if shard_starts is not a valid list, or is for other samples.
  [[nodiscard]] static std::optional<ShardSchedule> of(
      const Sampler& sampler, std::span<const std::uint64_t> shard_starts,
      std::uint64_t max_touches = kDefaultMaxTouches);

  /// Number of slots that all ranks deliver together, from the point where the sampler began to the
  /// end of the epoch.
  std::uint64_t num_slots() const noexcept { return num_slots_; }

  /// Returns the uses of these ranks. Returns nullopt if `ranks` is only a part of the ranks and
  /// the uses of a part are unknown.
  /// @param window  if not 0, any rank may deliver samples in any order within windows of this many
  ///                positions, from the epoch's beginning. Uses are then whole windows, for all
  ///                ranks. 0 means that samples are delivered exactly in order.
  /// Cost: O(pieces + uses); with several streams O(pieces * log pieces).
  /// Errors: InvalidArgument if the ranks do not exist.
  std::optional<EpochSchedule> uses(const RankOptions::Range& ranks,
                                    std::uint64_t window = 0) const;

 private:
  /// Slots of the epoch, counted as if no sample were left out. They contain samples of the shards
  /// touched_[first_touch] up to, but excluding, touched_[last_touch].
  struct Piece {
    StridedRange slots;
    std::uint64_t first_touch;
    std::uint64_t last_touch;
  };
  class Maker;

  ShardSchedule() = default;

  std::optional<UseInterval> delivered_part(const Piece& piece,
                                            const RankOptions::Range& shares) const;
  UseInterval in_whole_steps(UseInterval use) const noexcept;
  UseInterval in_windows(UseInterval use, std::uint64_t window) const noexcept;

  std::uint64_t num_shards_ = 0;
  std::uint64_t world_size_ = 1;
  std::uint64_t replicas_ = 1;
  std::uint64_t num_shares_ = 1;
  std::uint64_t num_slots_ = 0;
  std::uint64_t step_slots_ = 1;  ///< number of slots of a step if bytes are balanced, else 1
  std::uint64_t first_kept_ = 0;
  std::shared_ptr<const KeptSlots> kept_;
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> touched_;  ///< the shards of each piece, ascending
  std::vector<UseInterval> padding_;    ///< sorted by begin
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::ShardSchedule;
}  // namespace shardwise
