#pragma once

#include <cstdint>

#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

/// The bytes that lenient scans did not read, because they stopped at damage. These bytes belong to
/// no sample.
struct LostRests {
  std::uint64_t num_shards = 0;
  std::uint64_t bytes = 0;  ///< from the damage to the end of each shard, after decompression
};
SHARDWISE_EXPORT LostRests lost_rests(const Index& index);

}  // namespace shardwise::detail
