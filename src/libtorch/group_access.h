#pragma once

#include <cstdint>

#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch {

/// What only the library asks of a ProcessGroup.
struct GroupAccess {
  /// As all_reduce() with kSum, under a name for errors, and adds `count` over the ranks on the
  /// way: it needs no collective of its own.
  static std::int64_t add_with_count(const ProcessGroup& group, const torch::Tensor& tensor,
                                     std::int64_t count, const char* name);
};

}  // namespace shardwise::libtorch
