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

/// Which shards are needed when in one epoch: the future of a shard cache, since the order is a
/// pure function.
///
///     const auto schedule = ShardSchedule::of(sampler, starts);       // the epoch of `sampler`
///     const auto node = schedule->uses({.first = 8, .count = 8});     // of its ranks 8 to 15
///
/// Time is counted in slots, as delivered: rank r of W delivers its sample i in slot i * W + r,
/// both counted from where the sampler began. (Of an epoch that is read from its beginning, with
/// nothing left out, these are the positions of resume tokens.) Replicas deliver in the same slots.
///
/// These are promised of the uses of a node:
///
/// - Every sample that the node delivers comes in a slot inside a use of its shard.
/// - A shard has a use of [begin, end) only if a piece of the order with samples of this shard is
///   delivered in slots from begin to end, and a rank of the node delivers one of these slots. A
///   piece is the part of one group (the `window` chunks that are mixed together; in order, one
///   shard; for wids one chunk) that falls in one stream. Inside a piece nothing is looked at: a
///   shard that has few samples in it counts for the whole of it, even if other ranks or another
///   stream happen to take those few. So with one node and one stream no shard is named that is
///   not needed.
/// - In a mixture a piece reaches from the block of 256 slots with its first sample to the end of
///   the one with its last. Where bytes are balanced, uses are of whole steps.
/// - Pieces of a shard that meet or overlap are one use. Uses come by begin, then by shard.
/// - With Order::Tail::kPad, the slots that repeat samples are looked at one by one; where bytes
///   are balanced, their uses are of the last step, too.
///
/// The future is not known of resampled orders, of orders that touch more than `max_touches` pieces
/// of shards (chunks of a few samples: then every shard is needed all the time), and, where bytes
/// are balanced, of a part of the ranks.
///
/// Immutable; safe from any thread. Memory: 40 bytes a piece and 8 a touch.
class SHARDWISE_EXPORT ShardSchedule {
 public:
  static constexpr std::uint64_t kDefaultMaxTouches = std::uint64_t{1} << 23;

  /// The schedule of the epoch at which `sampler` stands, from where it began, for any of its
  /// ranks; nothing if the future is not known.
  /// @param shard_starts  the first sample of each shard, then the number of samples; shards may be
  ///   empty.
  /// Cost: O(chunks + touches), about 0.1 us each; never O(samples).
  /// Errors: InvalidArgument if shard_starts is no such list, or of other samples.
  [[nodiscard]] static std::optional<ShardSchedule> of(
      const Sampler& sampler, std::span<const std::uint64_t> shard_starts,
      std::uint64_t max_touches = kDefaultMaxTouches);

  /// Slots that all ranks deliver together from where the sampler began: where the epoch ends.
  std::uint64_t num_slots() const noexcept { return num_slots_; }

  /// The uses of these ranks; nothing if they are not known of a part of the ranks.
  /// @param window  where samples come in any order within windows of so many positions, from the
  ///   epoch's beginning, and to any rank: uses are then of whole windows, and of all ranks. 0: as
  ///   the order says.
  /// Cost: O(pieces + uses), about 0.1 us a use; with several streams O(pieces * log pieces).
  /// Errors: InvalidArgument if there are no such ranks.
  std::optional<EpochSchedule> uses(const RankOptions::Range& ranks,
                                    std::uint64_t window = 0) const;

 private:
  /// Slots of the epoch, as if nothing were left out, in which samples of shards
  /// touched_[first_touch] to before touched_[last_touch] come.
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
  std::uint64_t step_slots_ = 1;  ///< slots of a step where bytes are balanced, else 1
  std::uint64_t first_kept_ = 0;
  std::shared_ptr<const KeptSlots> kept_;
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> touched_;  ///< shards of each piece, ascending
  std::vector<UseInterval> padding_;    ///< by begin
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::ShardSchedule;
}  // namespace shardwise
