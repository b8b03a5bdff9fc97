#pragma once

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// While it lives, what this thread waits for in storage ends with Cancelled when a flag of its
/// own is true. Several users of one data set so cancel each their own waits, and not those of the
/// others; the data set's own token, if it has one, still holds for all. Of several scopes in one
/// thread the innermost counts. One thread.
class SHARDWISE_EXPORT CancelScope {
 public:
  /// REQUIRES: `flag` outlives the scope, and the work that is begun in it.
  [[nodiscard]] explicit CancelScope(const CancelToken::Flag& flag) noexcept;
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  /// Stops when `token` does, or when this thread's scope says so. Any thread may ask it.
  [[nodiscard]] static CancelToken joined(const CancelToken& token);
  /// Errors: Cancelled, if this thread's scope says so.
  static void throw_if_cancelled() { joined({}).throw_if_cancelled(); }

 private:
  const CancelToken::Flag* const before_;
};

}  // namespace shardwise::detail
