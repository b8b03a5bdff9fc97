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
SHARDWISE_EXPORT ProcessGroup adopt(c10d::ProcessGroup* group, std::shared_ptr<void> owner,
                                    StopGuard* guard);
SHARDWISE_EXPORT ProcessGroup adopt(c10d::Backend* group, std::shared_ptr<void> owner,
                                    StopGuard* guard);
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
/// Tensors are reduced on the GPU if the group takes tensors there (NCCL), else on the CPU; copies
/// go there and back.
///
/// @tparam Group  a c10d::ProcessGroup or, with LibTorch 2, a c10d::Backend; include its header.
/// @param guard  lets the ranks stop together, see StopGuard; all ranks give one, or none. Its word
///   goes along with the calls of this library. A rank that gives up a step says so in the next of
///   them, so calls of the program's own (such as those of c10d's Reducer) belong behind the step's
///   first call of this library: where a rank fails among them, the others wait for it until the
///   group's timeout. A signal does not end the making of `group` itself, nor this call. The guard
///   outlives the group's use.
/// Errors: Mismatch, on every rank, if they have other versions of this library or of LibTorch, or
///   a guard on some only; InvalidArgument, if the guard has a group already; kDistributed, also
///   where this build has no c10d. Cost: four exchanges.
template <class Group>
ProcessGroup adopt_process_group(const c10::intrusive_ptr<Group>& group,
                                 StopGuard* guard = nullptr) {
  using Base = std::conditional_t<std::is_convertible_v<Group*, c10d::ProcessGroup*>,
                                  c10d::ProcessGroup, c10d::Backend>;
  return detail::adopt(static_cast<Base*>(group.get()),
                       std::make_shared<c10::intrusive_ptr<Group>>(group), guard);
}

}  // namespace shardwise::libtorch
