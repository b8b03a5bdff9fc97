#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/base/shard_use.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// Ranks [first, first + count): those that share a cache, as the ranks of one node do.
struct RankRange {
  std::uint64_t first = 0;
  std::uint64_t count = 1;
};

/// Which shards are needed when in one epoch: the future of a shard cache, since the order is a
/// pure function.
///
///     const auto schedule = ShardSchedule::of(sampler, starts);       // the epoch of `sampler`
///     const auto node = schedule->uses({.first = 8, .count = 8});     // of its ranks 8 to 15
///
/// Time is counted in slots, as delivered: rank r of W delivers its sample i in slot i * W + r.
/// (Where nothing is skipped these are the global slots of resume tokens.)
///
/// What is promised, of the uses of a node:
///  * Every sample that the node delivers comes in a slot inside a use of its shard.
///  * A shard has a use of [begin, end) only if a piece of the order with samples of this shard is
///    delivered in slots from begin to end, and a rank of the node delivers one of these slots. A
///    piece is the part of one group (the `window` chunks that are mixed together; in order, one
///    shard; for wids one chunk) that falls in one stream. Inside a piece nothing is looked at: a
///    shard that has few samples in it counts for the whole of it, even if other ranks or another
///    stream happen to take those few. So with one node and one stream no shard is named that is
///    not needed.
///  * Pieces of a shard that meet or overlap are one use. Uses come by begin, then by shard.
///  * With Tail::kPad, the slots that repeat samples are looked at one by one.
///
/// What has no known future: resampled orders, mixtures, orders that touch more than `max_touches`
/// pieces of shards (chunks of a few samples: then every shard is needed all the time), and, where
/// bytes are balanced, a part of the ranks.
///
/// Immutable; safe from any thread. Memory: 16 bytes a group and 8 a touch.
class SHARDWISE_EXPORT ShardSchedule {
 public:
  static constexpr std::uint64_t kDefaultMaxTouches = std::uint64_t{1} << 23;

  /// The schedule of the epoch at which `sampler` stands, for any of its ranks; nothing if the
  /// future is not known. `shard_starts`: the first sample of each shard, then the number of
  /// samples; shards may be empty.
  /// Cost: O(chunks + touches), about 0.1 us each; never O(samples).
  /// Errors: InvalidArgument if shard_starts is no such list, or of other samples.
  static std::optional<ShardSchedule> of(const Sampler& sampler,
                                         std::span<const std::uint64_t> shard_starts,
                                         std::uint64_t max_touches = kDefaultMaxTouches);

  /// Slots that all ranks deliver together: where the epoch ends.
  std::uint64_t num_slots() const noexcept { return num_slots_; }

  /// The uses of these ranks; nothing if they are not known of a part of the ranks.
  /// Cost: O(pieces + uses), about 0.1 us a use; with several streams O(pieces * log pieces).
  /// Errors: InvalidArgument if there are no such ranks.
  std::optional<EpochUses> uses(const RankRange& ranks) const;

 private:
  /// What is mixed together: the order's positions from `begin` to where the next group begins.
  struct Group {
    std::uint64_t begin;
    std::uint64_t first_touch;
  };
  /// What of a group falls in one stream, in slots.
  struct Piece {
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t group;
  };

  ShardSchedule(const Sampler& sampler, std::span<const std::uint64_t> shard_starts);

  bool add_groups(const Sampler& sampler, std::span<const std::uint64_t> shard_starts,
                  std::uint64_t max_touches);
  bool add_group(std::span<const std::pair<std::uint64_t, std::uint64_t>> samples,
                 std::span<const std::uint64_t> shard_starts, std::uint64_t max_touches);
  void add_padding(const Sampler& sampler, std::span<const std::uint64_t> shard_starts);
  std::vector<Piece> pieces(const RankRange& ranks) const;
  std::optional<Piece> piece(std::uint64_t group, std::uint64_t stream, std::uint64_t first,
                             std::uint64_t last, const RankRange& ranks) const;
  bool delivers(const RankRange& ranks, std::uint64_t first, std::uint64_t count) const noexcept;

  std::uint64_t num_shards_;
  std::uint64_t world_size_;
  std::uint64_t num_streams_;
  std::uint64_t num_slots_;
  bool ranks_are_fixed_;
  KeptSlots kept_{0};
  std::vector<std::uint64_t> runs_;     ///< where each stream begins, then the number of positions
  std::vector<Group> groups_;           ///< and one more, where all ends
  std::vector<std::uint64_t> touched_;  ///< shards of each group, ascending
  std::vector<ShardUse> padding_;       ///< by begin
};

}  // namespace shardwise
