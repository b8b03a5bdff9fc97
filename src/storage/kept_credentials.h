#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/fork.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/error.h"

namespace shardwise {

/// The id() of credentials that a server just refused; nullopt if none were refused.
using Refused = std::optional<std::string>;

/// Caches credentials that a service issued. They are renewed when a quarter of their lifetime, but
/// at most 5 minutes, remains.
///
/// When a renewal is due, one thread requests new credentials while other threads use the old ones.
/// If the request fails, the old credentials are used until they expire; afterwards the error is
/// thrown.
///
/// Threads: internally synchronised.
/// Processes: a forked child inherits the cached credentials.
/// @tparam Credentials  has are_there(), id(), and `expires` (nullopt if unknown or never).
/// @tparam Clock  the clock of `expires`; tests replace it.
template <class Credentials, class Clock = std::chrono::system_clock>
class KeptCredentials {
 public:
  using Ask = std::function<Credentials(const CancelToken&)>;

  /// Returns the cached credentials, or new ones from `ask`.
  /// @param name     cache key; credentials cached under another name are not used.
  /// @param refused  the id() that the server refused; cached credentials with this id() are not
  ///   used.
  /// Errors: errors of `ask`; Cancelled.
  Credentials get(const std::string& name, Refused refused, const Ask& ask,
                  const CancelToken& cancel);

 private:
  struct Kept {
    std::string name;
    Credentials credentials;
    typename Clock::time_point renew_at;
  };

  static bool are_void(const Credentials& credentials) {
    return credentials.expires && *credentials.expires <= Clock::now();
  }
  static typename Clock::time_point renewal_of(const Credentials& credentials);
  void finish(const std::string& name, const Credentials* credentials, bool has_before);

  Mutex mutex_;
  Condition renewed_;
  std::optional<Kept> kept_ SHARDWISE_GUARDED_BY(mutex_);
  /// 1 + generation of the process in which a thread is calling `ask`; 0 if no thread is calling
  /// it.
  std::uint64_t renewing_ SHARDWISE_GUARDED_BY(mutex_) = 0;
};

template <class Credentials, class Clock>
auto KeptCredentials<Credentials, Clock>::renewal_of(const Credentials& credentials) ->
    typename Clock::time_point {
  constexpr std::chrono::minutes kRenewBefore{5};
  constexpr std::chrono::minutes kNoneFor{5};  // how long a negative result is cached
  const auto now = Clock::now();
  if (!credentials.are_there()) return now + kNoneFor;
  if (!credentials.expires) return Clock::time_point::max();
  const auto left = *credentials.expires - now;
  return *credentials.expires - std::min<typename Clock::duration>(kRenewBefore, left / 4);
}

template <class Credentials, class Clock>
void KeptCredentials<Credentials, Clock>::finish(const std::string& name,
                                                 const Credentials* credentials, bool has_before) {
  constexpr std::chrono::seconds kAskAgain{30};  // wait after a failure
  const Lock lock(mutex_);
  renewing_ = 0;
  if (credentials != nullptr) {
    kept_ = {.name = name, .credentials = *credentials, .renew_at = renewal_of(*credentials)};
  } else if (has_before && kept_) {
    kept_->renew_at = Clock::now() + kAskAgain;
  }
  renewed_.notify_all();
}

template <class Credentials, class Clock>
Credentials KeptCredentials<Credentials, Clock>::get(const std::string& name, Refused refused,
                                                     const Ask& ask, const CancelToken& cancel) {
  std::optional<Credentials> before;
  {
    const Lock lock(mutex_);
    for (;;) {
      const bool is_usable = kept_ && kept_->name == name && !are_void(kept_->credentials) &&
                             refused != kept_->credentials.id();
      const bool is_renewing = renewing_ == process_generation() + 1;
      if (is_usable && (is_renewing || Clock::now() < kept_->renew_at)) return kept_->credentials;
      if (!is_renewing) {
        if (is_usable && kept_->credentials.are_there()) before = kept_->credentials;
        break;
      }
      renewed_.wait(mutex_, cancel);
      if (renewing_ == 0) refused.reset();  // another thread has renewed the credentials
    }
    renewing_ = process_generation() + 1;
  }
  try {
    Credentials credentials = ask(cancel);
    // Keep the old credentials if the service has none now.
    if (before && !credentials.are_there()) credentials = *before;
    finish(name, &credentials, before.has_value());
    return credentials;
  } catch (const Cancelled&) {
    finish(name, nullptr, before.has_value());
    throw;
  } catch (const Error&) {
    finish(name, nullptr, before.has_value());
    if (before && !are_void(*before)) return *before;
    throw;
  } catch (...) {
    finish(name, nullptr, before.has_value());
    throw;
  }
}

}  // namespace shardwise
