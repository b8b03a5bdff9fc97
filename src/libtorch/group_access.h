#pragma once

#include <functional>
#include <memory>

#include "base/agreement.h"
#include "base/rank_environment.h"
#include "libtorch/agreed_calls.h"
#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch {

/// What only the library asks of a ProcessGroup.
struct SHARDWISE_EXPORT GroupAccess {
  static detail::AgreedCalls& calls(const ProcessGroup& group) { return *group.calls_; }

  /// A group of this process alone, with what a guard shares.
  static ProcessGroup alone(std::shared_ptr<StopState> stop);

  /// Makes a group, which is the guard's if there is one.
  /// @param make  is given what the guard shares; nullptr: there is none.
  /// Errors: InvalidArgument, if the guard has a group already; those of `make`.
  static ProcessGroup join(
      StopGuard* guard,
      const std::function<std::shared_ptr<detail::AgreedCalls>(std::shared_ptr<StopState>)>& make);
};

namespace detail {

/// The ranks of a launcher, over Gloo.
std::shared_ptr<AgreedCalls> connect(const RankEnvironment& environment,
                                     const ProcessGroup::Options& options,
                                     std::shared_ptr<StopState> stop);

/// What all ranks must have alike to understand each other.
Record versions(bool has_guard);

}  // namespace detail

}  // namespace shardwise::libtorch
