#pragma once

#include <memory>
#include <type_traits>

#include <c10/util/intrusive_ptr.h>

#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace shardwise::libtorch {

namespace detail {
/// @param owner  keeps the group.
SHARDWISE_EXPORT ProcessGroup adopt(c10d::ProcessGroup* group, std::shared_ptr<void> owner);
SHARDWISE_EXPORT ProcessGroup adopt(c10d::Backend* group, std::shared_ptr<void> owner);
}  // namespace detail

/// The ranks of a group of c10d that the program has made itself, in place of
/// init_process_group(): the launcher's variables do not count, and Gloo's headers are not needed.
///
///     auto own = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world);
///     sl::ImageLoader loader(data, sl::adopt_process_group(own), {.batch_size = 64});
///
/// Every rank of the group calls it. The group is kept as long as the result or a copy of it. It
/// may be used for calls of the program's own, too, in the same order on all ranks, and not while
/// a call of this library is under way. Its timeout counts, and what it does when a peer is lost.
/// It has no StopGuard: one beside it stops its own rank only, and the others wait for that rank.
/// Tensors are reduced on the GPU if the group takes tensors there (NCCL), else on the CPU; copies
/// go there and back.
///
/// @tparam Group  a c10d::ProcessGroup or, with LibTorch 2, a c10d::Backend; include its header.
/// Errors: Mismatch, on every rank, if they have other versions of this library or of LibTorch;
///   kDistributed, also where this build has no c10d. Cost: three exchanges.
template <class Group>
ProcessGroup adopt_process_group(const c10::intrusive_ptr<Group>& group) {
  using Base = std::conditional_t<std::is_convertible_v<Group*, c10d::ProcessGroup*>,
                                  c10d::ProcessGroup, c10d::Backend>;
  return detail::adopt(static_cast<Base*>(group.get()),
                       std::make_shared<c10::intrusive_ptr<Group>>(group));
}

}  // namespace shardwise::libtorch
