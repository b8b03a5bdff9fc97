#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "shardwise/base/export.h"

namespace shardwise {

namespace detail {
class CancelScope;
}  // namespace detail

/// Tells long work whether to stop: the work asks it now and then. It shares a flag with whoever
/// may cancel; by default there is no flag, and nothing is ever cancelled. A cheap value; any
/// thread.
///
/// The flag is an atomic that needs no lock, so that a signal handler may set it.
class SHARDWISE_EXPORT CancelToken {
 public:
  using Flag = std::atomic<bool>;
  static_assert(Flag::is_always_lock_free, "a signal handler may set it");

  CancelToken() = default;
  /// Stops when `flag`, unless that is null, becomes true. It must outlive what has the token.
  CancelToken(const Flag* flag) noexcept  // NOLINT(google-explicit-constructor): &flag is one
      : flag_(std::shared_ptr<const Flag>(), flag) {}
  /// Asks a flag that lives as long as any token of it.
  CancelToken(std::shared_ptr<const Flag> flag) noexcept  // NOLINT(google-explicit-constructor)
      : flag_(std::move(flag)) {}

  /// True if it has a flag.
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
  std::shared_ptr<const Flag> also_;  // that of the thread which asked for the work
};

}  // namespace shardwise
