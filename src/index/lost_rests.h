#pragma once

#include <cstdint>

#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

/// What lies behind damage at which a lenient scan ended, and so is in no sample either.
struct LostRests {
  std::uint64_t num_shards = 0;
  std::uint64_t bytes = 0;  ///< from the damage to the shards' ends; of compressed ones, expanded
};
SHARDWISE_EXPORT LostRests lost_rests(const Index& index);

}  // namespace shardwise::detail
