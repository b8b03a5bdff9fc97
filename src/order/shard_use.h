#pragma once

#include <cstdint>
#include <vector>

namespace shardwise {

/// A shard is needed while an epoch is between two of its slots: by slots in [begin, end).
struct UseInterval {
  std::uint64_t shard = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend auto operator<=>(const UseInterval&, const UseInterval&) = default;
};

/// When each shard is needed in one epoch. Made by order, which knows no caches; used by storage,
/// which knows no orders.
struct EpochSchedule {
  std::uint64_t num_slots = 0;  ///< of the epoch, all ranks together; no use ends later
  /// By begin, then by shard. Uses of one shard are apart from each other: end < next begin.
  std::vector<UseInterval> uses;
};

}  // namespace shardwise
