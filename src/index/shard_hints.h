#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "index/offset_table.h"

namespace shardwise {

/// Returns the shift for make_hints(). A shard then has about four hints, so that a lookup visits
/// few shards.
inline std::uint32_t hint_shift_for(std::uint64_t num_samples, std::uint64_t num_shards) {
  const std::uint64_t stride = num_samples / std::max<std::uint64_t>(1, 4 * num_shards);
  std::uint32_t shift = 0;
  while (shift < 40 && (stride >> shift) > 1) ++shift;
  return shift;
}

/// Returns the shard of every 2^shift-th sample.
/// @param directory  including its last entry, which has the total number of samples.
inline std::vector<std::uint32_t> make_hints(const std::vector<ShardEntry>& directory,
                                             std::uint32_t shift) {
  std::vector<std::uint32_t> hints;
  std::uint32_t shard = 0;
  for (std::uint64_t first = 0; first < directory.back().first_sample;
       first += std::uint64_t{1} << shift) {
    while (directory[shard + 1].first_sample <= first) ++shard;
    hints.push_back(shard);
  }
  return hints;
}

}  // namespace shardwise
