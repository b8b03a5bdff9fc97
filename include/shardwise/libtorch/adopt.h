#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include <c10/util/intrusive_ptr.h>

#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"

namespace c10d {
class Backend;
class CommHookInterface;
class ProcessGroup;
}  // namespace c10d

namespace shardwise::libtorch {

namespace detail {
/// @param owner  keeps the group alive.
SHARDWISE_EXPORT ProcessGroup adopt(c10d::ProcessGroup* group, std::shared_ptr<void> owner,
                                    StopGuard* guard);
SHARDWISE_EXPORT ProcessGroup adopt(c10d::Backend* group, std::shared_ptr<void> owner,
                                    StopGuard* guard);
}  // namespace detail

/// Wraps a c10d group that the program has made. Call it instead of init_process_group(). It
/// ignores the launcher's environment variables, and needs no Gloo headers.
///
///     auto own = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world);
///     sl::ImageLoader loader(data, sl::adopt_process_group(own), {.batch_size = 64});
///
/// Every rank of the group must call it. The program may use `group` for its own calls, in the same
/// order on all ranks, and not during a call of this library. The group's timeout applies, and the
/// group detects a lost peer. Errors name that peer only if all ranks can reach each other over the
/// network. This call tests whether they can (GLOO_SOCKET_IFNAME selects the interface). Tensors
/// are reduced on the GPU if the group supports that (NCCL). Otherwise they are copied to the CPU
/// and back.
///
/// @tparam Group  a c10d::ProcessGroup or, with LibTorch 2, a c10d::Backend; include its header.
/// @param guard  lets the ranks stop together, see StopGuard. Either all ranks pass a guard, or
///   none. It must outlive the use of the group. A signal interrupts neither the construction of
///   `group` nor this call.
/// Lifetime: the group is kept alive by the result and its copies.
/// Errors: Mismatch, on every rank, if versions of this library or of LibTorch differ, or only some
///   ranks pass a guard. InvalidArgument if the guard already has a group. kDistributed if a
///   collective fails, or this build has no c10d.
/// Cost: eight small collectives, and 5 s if ranks cannot reach each other.
///
/// With a guard, the calls of this library carry requests to stop. A rank that abandons a step
/// tells the other ranks in its next call of this library. Put your own collective calls after the
/// step's first call of this library. If a rank fails before one of your own calls, the others wait
/// in it for the group's timeout. Use reducer_hook() to turn the calls of c10d's Reducer into calls
/// of this library.
template <class Group>
ProcessGroup adopt_process_group(const c10::intrusive_ptr<Group>& group,
                                 StopGuard* guard = nullptr) {
  using Base = std::conditional_t<std::is_convertible_v<Group*, c10d::ProcessGroup*>,
                                  c10d::ProcessGroup, c10d::Backend>;
  return detail::adopt(static_cast<Base*>(group.get()),
                       std::make_shared<c10::intrusive_ptr<Group>>(group), guard);
}

/// Makes a communication hook for c10d's Reducer, which reduces gradients in buckets during the
/// backward pass:
///
///     std::int64_t samples = 0;                    // of this rank, in a step
///     reducer.register_comm_hook(reducer_hook(group, [&] { return samples; }));
///
/// A thread of `group` makes one call per bucket. These calls carry the guard's requests to stop.
/// If a rank throws within the pass, all ranks abandon the step. If a rank is lost, the error names
/// it. Make no other call of `group` until the pass has ended.
///
/// Afterwards each gradient is the sum over the ranks, added in float32 or wider, divided by the
/// number of samples of all ranks. The loss must therefore be a sum over samples. A rank without
/// samples runs a backward pass of zeros.
///
/// If the Reducer looks for unused parameters, it must have its own process group, because it makes
/// additional calls. A rank that throws does not make these calls. The others then wait for the
/// timeout of the Reducer's group.
///
/// @param num_samples  returns the number of samples of this rank in all accumulated passes of the
///   step. Called for each bucket, on the thread of the backward pass.
/// Threads: the group gets one more thread. If the group is destroyed after a pass that threw, its
///   destructor waits for the bucket in flight. The thread of the backward pass reduces buckets on
///   a GPU itself, and waits for them.
/// Errors: thrown within the backward pass: those of ProcessGroup. Cancelled, or kDistributed
///   naming the rank, if another rank abandoned the step. Unsupported for sparse gradients.
[[nodiscard]] SHARDWISE_EXPORT std::unique_ptr<c10d::CommHookInterface> reducer_hook(
    const ProcessGroup& group, std::function<std::int64_t()> num_samples);

}  // namespace shardwise::libtorch
