#pragma once

#include <cstdint>
#include <vector>

namespace shardwise {

/// An interval in which a shard is needed: the slots [begin, end) of an epoch.
struct UseInterval {
  std::uint64_t shard = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend auto operator<=>(const UseInterval&, const UseInterval&) = default;
};

/// The intervals in which each shard is needed in one epoch. The order module makes this struct and
/// does not depend on caches. The storage module uses it and does not depend on orders.
struct EpochSchedule {
  std::uint64_t num_slots = 0;  ///< slots of the epoch, over all ranks; no use ends after them
  /// Sorted by begin, then by shard. Uses of one shard are not adjacent: each ends before the next
  /// begins.
  std::vector<UseInterval> uses;
};

}  // namespace shardwise
