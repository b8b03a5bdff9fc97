#pragma once

#include <functional>
#include <memory>

#include "base/agreement.h"
#include "base/rank_environment.h"
#include "libtorch/agreed_calls.h"
#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch {

/// The parts of ProcessGroup for use inside the library.
struct SHARDWISE_EXPORT GroupAccess {
  static detail::AgreedCalls& calls(const ProcessGroup& group) { return *group.calls_; }

  /// Makes a group of this process alone, which shares the StopState with a guard.
  static ProcessGroup alone(std::shared_ptr<StopState> stop);

  /// Makes a group. If `guard` is not null, connects the guard to it.
  /// @param make  makes the group's calls. Its argument is the state shared with the guard, or
  /// nullptr.
  /// Errors: InvalidArgument if the guard has a group already; those of `make`.
  static ProcessGroup join(
      StopGuard* guard,
      const std::function<std::shared_ptr<detail::AgreedCalls>(std::shared_ptr<StopState>)>& make);
};

namespace detail {

/// Connects the ranks that a launcher started, over Gloo.
std::shared_ptr<AgreedCalls> connect(const RankEnvironment& environment,
                                     const ProcessGroup::Options& options,
                                     std::shared_ptr<StopState> stop);

/// Returns versions and settings that must be equal on all ranks for calls to work.
Record versions(bool has_guard);

}  // namespace detail

}  // namespace shardwise::libtorch
