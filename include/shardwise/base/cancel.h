#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "shardwise/base/export.h"

namespace shardwise {

namespace detail {
class CancelScope;
}  // namespace detail

/// A token that a long operation polls to learn whether to stop. It refers to a flag that another
/// thread or a signal handler sets. A default-constructed token has no flag and is never cancelled.
///
/// Threads: safe from any thread.
/// Cost: cheap to copy.
class SHARDWISE_EXPORT CancelToken {
 public:
  using Flag = std::atomic<bool>;
  static_assert(Flag::is_always_lock_free, "a signal handler may set it");

  CancelToken() = default;
  /// Refers to `flag`, which must outlive every user of the token. If `flag` is null, the token is
  /// never cancelled.
  CancelToken(const Flag* flag) noexcept  // NOLINT(google-explicit-constructor): pass &flag
      : flag_(std::shared_ptr<const Flag>(), flag) {}
  /// Shares ownership of `flag`.
  CancelToken(std::shared_ptr<const Flag> flag) noexcept  // NOLINT(google-explicit-constructor)
      : flag_(std::move(flag)) {}

  /// True if the token has a flag.
  [[nodiscard]] bool can_be_cancelled() const noexcept {
    return flag_ != nullptr || also_ != nullptr;
  }
  [[nodiscard]] bool is_cancelled() const noexcept { return is_set(flag_) || is_set(also_); }
  /// Errors: Cancelled.
  void throw_if_cancelled() const {
    if (is_cancelled()) throw_cancelled();
  }

 private:
  friend class detail::CancelScope;

  static bool is_set(const std::shared_ptr<const Flag>& flag) noexcept {
    return flag != nullptr && flag->load(std::memory_order_relaxed);
  }
  [[noreturn]] static void throw_cancelled();

  std::shared_ptr<const Flag> flag_;
  std::shared_ptr<const Flag> also_;  // the flag of the calling thread's CancelScope, if any
};

}  // namespace shardwise
