#pragma once

#include <cstdint>
#include <vector>

namespace shardwise {

/// An interval in which a shard is needed: by slots in [begin, end) of an epoch.
struct UseInterval {
  std::uint64_t shard = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend auto operator<=>(const UseInterval&, const UseInterval&) = default;
};

/// The intervals in which each shard is needed in one epoch. The order module makes it without
/// knowing caches; the storage module uses it without knowing orders.
struct EpochSchedule {
  std::uint64_t num_slots = 0;  ///< of the epoch, all ranks together; no use ends later
  /// Sorted by begin, then by shard. Uses of one shard do not touch: end < next begin.
  std::vector<UseInterval> uses;
};

}  // namespace shardwise
