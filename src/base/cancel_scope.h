#pragma once

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// While it lives, this thread's waits in storage and its listings of folders end with Cancelled
/// once `flag` is true. It lets several users of one data set cancel their waits separately. The
/// data set's own token, if any, still cancels the waits of all users. If scopes are nested, only
/// the innermost applies.
/// Threads: used by one thread.
class SHARDWISE_EXPORT CancelScope {
 public:
  /// REQUIRES: `flag` outlives the scope and all work that is begun in it.
  [[nodiscard]] explicit CancelScope(const CancelToken::Flag& flag) noexcept;
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  /// Returns a token that is cancelled when `token` or this thread's scope is cancelled. Any thread
  /// may poll it.
  [[nodiscard]] static CancelToken joined(const CancelToken& token);
  /// Errors: Cancelled, if this thread's scope is cancelled.
  static void throw_if_cancelled() { joined({}).throw_if_cancelled(); }

 private:
  const CancelToken::Flag* const before_;
};

}  // namespace shardwise::detail
