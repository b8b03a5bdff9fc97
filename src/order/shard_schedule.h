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

/// The times at which each shard is needed in one epoch. A shard cache uses it to plan ahead, which
/// is possible since the order is a pure function.
///
///     const auto schedule = ShardSchedule::of(sampler, starts);       // the epoch of `sampler`
///     const auto node = schedule->uses({.first = 8, .count = 8});     // of its ranks 8 to 15
///
/// Units: time is counted in delivered slots. Rank r of W delivers its sample i in slot i * W + r,
/// both counted from the sampler's beginning. For a whole epoch without samples left out, these are
/// the positions of resume tokens. Replicas deliver in the same slots.
///
/// Guarantees for the uses of a node:
///
/// - Every sample that the node delivers comes in a slot inside a use of its shard.
/// - A shard has a use of [begin, end) only if a piece of the order with its samples is delivered
///   in slots from begin to end, and the node delivers one of these slots. A piece is the part of
///   one group that is in one stream. A group is the `window` chunks that are mixed together; in
///   order, one shard; for wids one chunk. A piece is not split: a shard with few samples in it
///   counts for all of it, even if other ranks or another stream take those few. With one node and
///   one stream every listed shard is needed.
/// - In a mixture a piece reaches from the block of 256 slots with its first sample to the end of
///   the block with its last. With balanced bytes, uses are whole steps.
/// - Pieces of a shard that meet or overlap are one use. Uses are sorted by begin, then by shard.
/// - With Order::Tail::kPad, each slot that repeats a sample counts as a piece; with balanced
///   bytes, its use is the whole last step.
///
/// The future is unknown for resampled orders, and for orders that touch more than `max_touches`
/// pieces of shards. (With chunks of a few samples, every shard is needed all the time.) With
/// balanced bytes it is unknown for a part of the ranks.
///
/// Threads: immutable; safe from any thread.
/// Memory: 40 bytes per piece and 8 per touch.
class SHARDWISE_EXPORT ShardSchedule {
 public:
  static constexpr std::uint64_t kDefaultMaxTouches = std::uint64_t{1} << 23;

  /// The schedule of the current epoch of `sampler`, from its beginning there, for any of its
  /// ranks; nullopt if the future is unknown.
  /// @param shard_starts  the first sample of each shard, then the number of samples; shards may be
  ///                      empty.
  /// Cost: O(chunks + touches); never O(samples).
  /// Errors: InvalidArgument if shard_starts is not a valid list, or is for other samples.
  [[nodiscard]] static std::optional<ShardSchedule> of(
      const Sampler& sampler, std::span<const std::uint64_t> shard_starts,
      std::uint64_t max_touches = kDefaultMaxTouches);

  /// Slots that all ranks deliver together from the sampler's beginning: the end of the epoch.
  std::uint64_t num_slots() const noexcept { return num_slots_; }

  /// The uses of these ranks; nullopt if they are unknown for a part of the ranks.
  /// @param window  if not 0, samples come in any order within windows of this many positions, from
  ///                the epoch's beginning, and to any rank. Uses are then whole windows, of all
  ///                ranks. 0 means: exactly in order.
  /// Cost: O(pieces + uses); with several streams O(pieces * log pieces).
  /// Errors: InvalidArgument if the ranks do not exist.
  std::optional<EpochSchedule> uses(const RankOptions::Range& ranks,
                                    std::uint64_t window = 0) const;

 private:
  /// Slots of the epoch, counted without leaving out any. They hold samples of the shards
  /// touched_[first_touch] to before touched_[last_touch].
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
  std::uint64_t step_slots_ = 1;  ///< slots of a step with balanced bytes, else 1
  std::uint64_t first_kept_ = 0;
  std::shared_ptr<const KeptSlots> kept_;
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> touched_;  ///< shards of each piece, ascending
  std::vector<UseInterval> padding_;    ///< sorted by begin
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::ShardSchedule;
}  // namespace shardwise
