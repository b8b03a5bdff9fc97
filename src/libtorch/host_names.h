#pragma once

#include <string>
#include <vector>

#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch::detail {

/// Of each rank, the name of its machine. Every rank calls it. Cost: one exchange.
std::vector<std::string> host_names(const ProcessGroup& group);

}  // namespace shardwise::libtorch::detail
