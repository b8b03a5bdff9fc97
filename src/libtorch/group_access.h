#pragma once

#include <functional>
#include <memory>

#include "base/agreement.h"
#include "base/rank_environment.h"
#include "libtorch/agreed_calls.h"
#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch {

/// The parts of ProcessGroup that only the library uses.
struct SHARDWISE_EXPORT GroupAccess {
  static detail::AgreedCalls& calls(const ProcessGroup& group) { return *group.calls_; }

  /// A group of this process alone, which shares `stop` with a guard.
  static ProcessGroup alone(std::shared_ptr<StopState> stop);

  /// Makes a group. If `guard` is given, it becomes the guard's group.
  /// @param make  receives the state shared with the guard, or nullptr without a guard.
  /// Errors: InvalidArgument if the guard has a group already; those of `make`.
  static ProcessGroup join(
      StopGuard* guard,
      const std::function<std::shared_ptr<detail::AgreedCalls>(std::shared_ptr<StopState>)>& make);
};

namespace detail {

/// Connects the ranks of a launcher over Gloo.
std::shared_ptr<AgreedCalls> connect(const RankEnvironment& environment,
                                     const ProcessGroup::Options& options,
                                     std::shared_ptr<StopState> stop);

/// Versions and settings that must be the same on all ranks, so that their calls work together.
Record versions(bool has_guard);

}  // namespace detail

}  // namespace shardwise::libtorch
