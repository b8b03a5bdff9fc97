#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "libtorch/stop_state.h"
#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch {

namespace detail {
class CallQueue;
class Collectives;
}  // namespace detail

/// What only the library asks of a ProcessGroup.
struct SHARDWISE_EXPORT GroupAccess {
  /// As all_reduce() with kSum, under a name for errors, and adds `count` over the ranks on the
  /// way: it needs no collective of its own.
  /// @param ends_step  with it the gradients of a step are whole.
  static std::int64_t add_with_count(const ProcessGroup& group, const torch::Tensor& tensor,
                                     std::int64_t count, const char* name, bool ends_step = true);
  /// Of calls that are made beside the program's thread, which makes none meanwhile. They end with
  /// the group.
  static detail::CallQueue& queue(const ProcessGroup& group);
  /// A handle that does not keep the group, for those.
  static ProcessGroup unowned(const ProcessGroup& group);
  /// A group that somebody else made.
  /// @param stop  what its calls carry, once it is there; nullptr: nothing.
  static ProcessGroup adopt(std::unique_ptr<detail::Collectives> collectives,
                            std::shared_ptr<StopState> stop);

  /// Calls of this process so far: exchanges, and collectives with which more went along.
  struct Counts {
    std::uint64_t exchanges = 0;
    std::uint64_t collectives = 0;
  };
  static Counts counts(const ProcessGroup& group);

  // For ranks that stop together.

  /// The guard's group, whose calls carry its word.
  /// Errors: InvalidArgument, if it has one already; those of `make`.
  static ProcessGroup join(
      StopGuard& guard,
      const std::function<ProcessGroup(const std::shared_ptr<StopState>& state)>& make);
  /// What the group's guard shares; nullptr: it has none.
  static std::shared_ptr<StopState> stop_state(const ProcessGroup& group);
  /// Drops calls of the queue that were not begun, and waits for the one that was.
  static void end_queued(const ProcessGroup& group);
  /// False after a call that failed.
  static bool is_usable(const ProcessGroup& group);
  /// A call at the end of StopGuard::run().
  static void end_run(const ProcessGroup& group);
  /// A call instead of the one that the other ranks are at, which all give up. Afterwards the group
  /// is closed, until its state is reopened.
  static void give_up(const ProcessGroup& group);
  /// In a long loop without calls: throws Cancelled, on all ranks, if one is to stop at once.
  /// Nothing without a guard.
  static void throw_if_stopping(const ProcessGroup& group, const char* name);
};

}  // namespace shardwise::libtorch
