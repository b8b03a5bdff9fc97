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

/// When each shard is needed next, in one or several consecutive epochs. Slots are numbered across
/// epochs: slot s of epochs[1] is slot epochs[0].num_slots + s.
///
/// Threads: immutable; safe from any thread.
/// Memory: 16 bytes a use, 8 a shard.
class NextUseIndex {
 public:
  /// Cost: O(uses + shards).
  /// Errors: InvalidArgument if a use names an unknown shard, is empty, or ends after its epoch, or
  ///   if uses are not in the order of EpochSchedule.
  NextUseIndex(std::uint64_t num_shards, std::span<const EpochSchedule> epochs);

  std::uint64_t num_shards() const noexcept { return first_.size() - 1; }
  /// The number of slots of all epochs.
  std::uint64_t num_slots() const noexcept { return num_slots_; }

  /// The first slot from `from` on at which `shard` is needed; `from` itself within a use. Returns
  /// nullopt if it is not needed any more.
  /// REQUIRES: shard < num_shards().
  /// Cost: O(log uses of the shard).
  std::optional<std::uint64_t> next(std::uint64_t shard, std::uint64_t from) const noexcept;
  /// The end of the use that contains `slot`; nullopt if `shard` is not in use there.
  /// REQUIRES: as next(). Cost: as next().
  std::optional<std::uint64_t> in_use_until(std::uint64_t shard, std::uint64_t slot) const noexcept;

 private:
  struct Span {
    std::uint64_t begin;
    std::uint64_t end;
  };
  const Span* find(std::uint64_t shard, std::uint64_t from) const noexcept;

  std::uint64_t num_slots_ = 0;
  std::vector<std::uint64_t> first_;  ///< start of each shard in spans_, then their total
  std::vector<Span> spans_;           ///< by shard, then ascending
};

/// Simulates a cache that starts empty and fetches on demand, without reading ahead, over
/// consecutive epochs. Shard i has sizes_bytes[i] bytes.
///
/// * At each slot where uses begin, those of cached shards are served first. Then the other shards
///   are fetched, in the order of their numbers.
/// * A shard is in use from the begin of its use until its end, and is not evicted meanwhile.
/// * choose_victims() chooses the victims, as in the real cache, from the information at this slot.
/// * If evicting all idle shards would not make enough room, none is evicted. The fetched shard
///   then bypasses the cache: it counts as a fetch, and its next use is a fetch again.
///
/// The outcome is a pure function, and the budget is never exceeded. Under kNextUse, fetching on
/// demand is optimal in fetches if shards have equal size and the budget holds all shards in use at
/// once (Belady). For unequal sizes the optimum is NP-hard, and this is a heuristic. Early
/// evictions from a cache of more than 256 shards are not optimal (low_water_bytes()).
///
/// Cost: O(uses * log shards).
/// Errors: InvalidArgument, as NextUseIndex.
std::vector<CacheCounts> simulate_cache(std::span<const EpochSchedule> epochs,
                                        std::span<const std::uint64_t> sizes_bytes,
                                        std::uint64_t budget_bytes, Replacement replacement);

/// The smallest budget with which kNextUse fetches each shard only once in all these epochs, and
/// bypasses none. It is the maximum over time of the bytes of shards between their first and last
/// use. For a budget that suffices within each epoch, take the maximum of the single epochs'
/// results.
/// Cost: O(uses), and O(shards * log shards) if streams interleave.
/// Errors: InvalidArgument, as NextUseIndex.
std::uint64_t smallest_budget_without_refetch(std::span<const EpochSchedule> epochs,
                                              std::span<const std::uint64_t> sizes_bytes);

/// The maximum bytes of shards in use at one time.
std::uint64_t peak_bytes_in_use(const EpochSchedule& epoch,
                                std::span<const std::uint64_t> sizes_bytes);

}  // namespace shardwise
