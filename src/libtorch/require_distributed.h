#pragma once

namespace shardwise::libtorch::detail {

/// Throws kDistributed if this build cannot form a group of `num_ranks` ranks.
void require_distributed(int num_ranks);

}  // namespace shardwise::libtorch::detail
