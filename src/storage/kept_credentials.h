#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/fork.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/error.h"

namespace shardwise {

/// The id() of credentials that a server just refused; nothing: it did not.
using Refused = std::optional<std::string>;

/// Credentials that a service gave, kept until a quarter of their time is left, 5 minutes at most.
///
/// From then on one thread asks for new ones while the others go on with these. If that fails,
/// these are used up to their end, and the failure is the error from then on. A `Credentials` has
/// are_there(), id(), and `expires`: when they are void; nothing: never, as far as is known.
///
/// Threads: internally synchronised. Processes: a forked child keeps what its parent had.
/// @tparam Clock  whose times `expires` has; tests have one of their own.
template <class Credentials, class Clock = std::chrono::system_clock>
class KeptCredentials {
 public:
  using Ask = std::function<Credentials(const CancelToken&)>;

  /// Those that are kept, or what `ask` gives.
  /// @param name     tells whose they are: those of another are asked for anew.
  /// @param refused  the server refused these, so that others are needed.
  /// Errors: those of `ask`; Cancelled.
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
  /// One more than the generation of the process in which a thread asks; 0: none does.
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
  constexpr std::chrono::seconds kAskAgain{30};  // after a failure
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
      if (renewing_ == 0) refused.reset();  // what another thread brought is new
    }
    renewing_ = process_generation() + 1;
  }
  try {
    Credentials credentials = ask(cancel);
    if (before && !credentials.are_there()) credentials = *before;  // the service is away
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
