#pragma once

#include <cstdint>
#include <memory>

#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch {

namespace detail {
class Collectives;
}  // namespace detail

/// What only the library asks of a ProcessGroup.
struct GroupAccess {
  /// As all_reduce() with kSum, under a name for errors, and adds `count` over the ranks on the
  /// way: it needs no collective of its own.
  static std::int64_t add_with_count(const ProcessGroup& group, const torch::Tensor& tensor,
                                     std::int64_t count, const char* name);
  /// A group that somebody else made.
  static ProcessGroup adopt(std::unique_ptr<detail::Collectives> collectives);
};

}  // namespace shardwise::libtorch
