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
/// a call of this library is under way. Its timeout counts, and it notices a lost peer; which one
/// that was is said as of every group, if all ranks can reach each other at the network's addresses
/// (GLOO_SOCKET_IFNAME names the interface). That is tried here.
/// Tensors are reduced on the GPU if the group takes tensors there (NCCL), else on the CPU; copies
/// go there and back.
///
/// @tparam Group  a c10d::ProcessGroup or, with LibTorch 2, a c10d::Backend; include its header.
/// @param guard  lets the ranks stop together, see StopGuard; all ranks give one, or none. Its word
///   goes along with the calls of this library. A rank that gives up a step says so in the next of
///   them, so calls of the program's own belong behind the step's first call of this library: where
///   a rank fails among them, the others wait for it until the group's timeout. Those of c10d's
///   Reducer become calls of this library by reducer_hook(). A signal does not end the making of
///   `group` itself, nor this call. The guard outlives the group's use.
/// Errors: Mismatch, on every rank, if they have other versions of this library or of LibTorch, or
///   a guard on some only; InvalidArgument, if the guard has a group already; kDistributed, also
///   where this build has no c10d. Cost: eight collectives of some bytes, and 5 s where ranks
///   cannot reach each other.
template <class Group>
ProcessGroup adopt_process_group(const c10::intrusive_ptr<Group>& group,
                                 StopGuard* guard = nullptr) {
  using Base = std::conditional_t<std::is_convertible_v<Group*, c10d::ProcessGroup*>,
                                  c10d::ProcessGroup, c10d::Backend>;
  return detail::adopt(static_cast<Base*>(group.get()),
                       std::make_shared<c10::intrusive_ptr<Group>>(group), guard);
}

/// For c10d's Reducer, which reduces gradients beside the backward pass, a bucket at a time:
///
///     std::int64_t samples = 0;                    // of this rank, in a step
///     reducer.register_comm_hook(reducer_hook(group, [&] { return samples; }));
///
/// The buckets are calls of `group`, made by a thread of it: they carry the guard's word, a rank
/// that throws within the pass gives the step up on all ranks, and a lost one is named. Afterwards
/// gradients are the sums over the ranks, added in float32 or wider, divided by the number of
/// samples of all ranks: so losses are summed over samples, and a rank without any makes a pass of
/// zeros. No other call of `group` until the pass has ended. The Reducer has a group of its own, or
/// does not look for unused parameters: it would make calls beside these. One that looks for them
/// waits within the pass for calls of its own, which a rank that threw does not make: then the
/// others hear of it after the timeout of the Reducer's group.
///
/// @param num_samples  of this rank, of all accumulated passes of the step; asked for each bucket,
///   on the thread of the backward pass.
/// Threads: the group has one more. Where the program drops the group after a pass that threw, the
///   bucket that was on its way is waited for.
/// Buckets on a GPU are reduced on the pass's own thread, which waits for them. That is untested.
/// Errors: within the backward pass: those of ProcessGroup; Cancelled, or kDistributed that names
///   the rank, when another rank gave up the step; Unsupported for sparse gradients.
[[nodiscard]] SHARDWISE_EXPORT std::unique_ptr<c10d::CommHookInterface> reducer_hook(
    const ProcessGroup& group, std::function<std::int64_t()> num_samples);

}  // namespace shardwise::libtorch
