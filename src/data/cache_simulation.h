#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "order/shard_use.h"
#include "shardwise/base/export.h"
#include "shardwise/data/fetch_plan.h"
#include "storage/eviction.h"

namespace shardwise {

using CacheCounts = FetchPlan::CacheCounts;

/// When each shard is needed next, in one epoch or several, one behind the other: their slots are
/// counted on, so that slot s of epochs[1] is slot epochs[0].num_slots + s.
///
/// Threads: immutable; safe from any thread.
/// Memory: 16 bytes a use, 8 a shard.
class NextUseIndex {
 public:
  /// Cost: O(uses + shards).
  /// Errors: InvalidArgument if a use names no shard below num_shards, is empty, or ends behind its
  ///   epoch, or uses are not in the order of EpochSchedule.
  NextUseIndex(std::uint64_t num_shards, std::span<const EpochSchedule> epochs);

  std::uint64_t num_shards() const noexcept { return first_.size() - 1; }
  /// Slots of all epochs: from there on nothing is known.
  std::uint64_t num_slots() const noexcept { return num_slots_; }

  /// The first slot from `from` on at which `shard` is needed: `from` itself inside a use; nothing
  /// if it is not needed any more.
  /// REQUIRES: shard < num_shards().
  /// Cost: O(log uses of the shard).
  std::optional<std::uint64_t> next(std::uint64_t shard, std::uint64_t from) const noexcept;
  /// The end of the use that `slot` lies in; nothing if `shard` is not in use there.
  /// REQUIRES and cost: as next().
  std::optional<std::uint64_t> in_use_until(std::uint64_t shard, std::uint64_t slot) const noexcept;

 private:
  struct Span {
    std::uint64_t begin;
    std::uint64_t end;
  };
  const Span* find(std::uint64_t shard, std::uint64_t from) const noexcept;

  std::uint64_t num_slots_ = 0;
  std::vector<std::uint64_t> first_;  ///< of each shard in spans_, then how many there are
  std::vector<Span> spans_;           ///< by shard, then ascending
};

/// Simulates a cache that starts empty in these epochs, one after another, on demand: without
/// reading ahead. Shard i has sizes_bytes[i] bytes.
///
///  * At each slot where uses begin, first those whose shards are cached are served; then the
///    others are fetched, in the order of their numbers.
///  * A shard is in use from the begin of its use to before its end, and then not evicted.
///  * To make room, shards leave as choose_victims() says of what is known at this slot, which is
///    what the cache asks too. If all shards that are not in use would not make enough, none
///    leaves, and the fetched shard is bypassed: it counts as a fetch, takes no room, and its next
///    use is a fetch again.
///
/// So the outcome is a pure function, the budget is never exceeded, and fetching on demand is
/// optimal in fetches under kNextUse for shards of equal size where the budget holds all that is in
/// use at once (Belady; for unequal sizes the optimum is NP-hard, and this a heuristic), but for
/// what leaves beforehand of a cache of more than 256 shards (low_water_bytes()).
///
/// Cost: O(uses * log shards), about 0.5 us a use with 10^5 shards.
/// Errors: InvalidArgument, as NextUseIndex.
std::vector<CacheCounts> simulate_cache(std::span<const EpochSchedule> epochs,
                                        std::span<const std::uint64_t> sizes_bytes,
                                        std::uint64_t budget_bytes, Replacement replacement);

/// The smallest budget from which kNextUse fetches each shard only once in all these epochs
/// together, and bypasses none: the most bytes of shards that are at one time between the begin of
/// their first use and the end of their last. For a budget that lasts for each epoch by itself,
/// take the largest of those of the single epochs.
/// Cost: O(uses), and O(shards * log shards) where streams interleave.
/// Errors: InvalidArgument, as NextUseIndex.
std::uint64_t smallest_budget_without_refetch(std::span<const EpochSchedule> epochs,
                                              std::span<const std::uint64_t> sizes_bytes);

/// The bytes of the shards that are in use at one time, at most.
std::uint64_t peak_bytes_in_use(const EpochSchedule& epoch,
                                std::span<const std::uint64_t> sizes_bytes);

}  // namespace shardwise
