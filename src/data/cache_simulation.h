#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "order/shard_use.h"
#include "shardwise/data/fetch_plan.h"
#include "storage/eviction.h"

namespace shardwise {

using CacheCounts = FetchPlan::CacheCounts;

/// Answers when each shard is needed next, within one or several consecutive epochs. Slots are
/// numbered across epochs: slot s of epochs[1] is slot epochs[0].num_slots + s.
///
/// Threads: safe concurrently; immutable.
/// Memory: 16 bytes per use and 8 bytes per shard.
class NextUseIndex {
 public:
  /// Cost: O(uses + shards).
  /// Errors: InvalidArgument if a use names an unknown shard, is empty, or ends after its epoch, or
  ///   if the uses are not in the order that EpochSchedule requires.
  NextUseIndex(std::uint64_t num_shards, std::span<const EpochSchedule> epochs);

  std::uint64_t num_shards() const noexcept { return first_.size() - 1; }

  /// Returns the first slot at or after `from` at which `shard` is needed; `from` itself if it is
  /// within a use; nullopt if the shard is not needed any more.
  /// REQUIRES: shard < num_shards().
  /// Cost: O(log(uses of the shard)).
  std::optional<std::uint64_t> next(std::uint64_t shard, std::uint64_t from) const noexcept;
  /// Returns the end of the use that contains `slot`; nullopt if `shard` is not in use at `slot`.
  /// REQUIRES: as next(). Cost: as next().
  std::optional<std::uint64_t> in_use_until(std::uint64_t shard, std::uint64_t slot) const noexcept;

 private:
  struct Span {
    std::uint64_t begin;
    std::uint64_t end;
  };
  const Span* find(std::uint64_t shard, std::uint64_t from) const noexcept;

  /// Position of each shard's first span in spans_; the last element is the number of spans.
  std::vector<std::uint64_t> first_;
  std::vector<Span> spans_;  ///< sorted by shard, then by slot
};

/// Simulates a cache over consecutive epochs. The cache starts empty, and fetches each shard only
/// when it is needed. Shard i has sizes_bytes[i] bytes.
///
/// * At each slot where uses begin, uses of cached shards are served first. The other shards are
///   then fetched, in the order of their numbers.
/// * A shard is in use from the beginning to the end of its use, and is not evicted in between.
/// * As in the real cache, choose_victims() chooses the victims, from what is known at this slot.
/// * If evicting all idle shards would not make enough room, nothing is evicted. The fetched shard
///   then bypasses the cache: it counts as a fetch, and its next use counts as another fetch.
///
/// The result is a pure function of the arguments, and the budget is never exceeded. Under kNextUse
/// the number of fetches is minimal if all shards have equal size and the budget holds all shards
/// that are in use at once (Belady). For unequal sizes the optimum is NP-hard, and this is a
/// heuristic. In a cache of more than 256 shards, early evictions (low_water_bytes()) make the
/// result slightly worse than optimal.
///
/// Cost: O(uses * log(shards)).
/// Errors: InvalidArgument, as NextUseIndex.
std::vector<CacheCounts> simulate_cache(std::span<const EpochSchedule> epochs,
                                        std::span<const std::uint64_t> sizes_bytes,
                                        std::uint64_t budget_bytes, Replacement replacement);

/// Returns the smallest budget with which kNextUse fetches each shard only once in all these
/// epochs, and no shard bypasses the cache. It is the maximum over time of the total size of all
/// shards between their first and last use. For a budget that suffices within each single epoch,
/// call this for each epoch and take the maximum.
/// Cost: O(uses); O(shards * log(shards)) in addition if streams interleave.
/// Errors: InvalidArgument, as NextUseIndex.
std::uint64_t smallest_budget_without_refetch(std::span<const EpochSchedule> epochs,
                                              std::span<const std::uint64_t> sizes_bytes);

/// Returns the largest total size of shards that are in use at the same time.
std::uint64_t peak_bytes_in_use(const EpochSchedule& epoch,
                                std::span<const std::uint64_t> sizes_bytes);

}  // namespace shardwise
