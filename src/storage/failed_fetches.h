#pragma once

#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <string>

#include "base/fork.h"

namespace shardwise::detail {

/// The last failure of each shard's fetches in this process. Threads: internally synchronised.
class FailedFetches {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param retry_for  retry budget of a fetch; older failures are forgotten.
  explicit FailedFetches(std::chrono::milliseconds retry_for) : retry_for_(retry_for) {}

  /// Records the exception that is being handled.
  void add(const std::string& name);
  void forget(const std::string& name);
  /// How long a fetch that begins now may be retried; nullopt means for the whole of retry_for. A
  /// failed fetch spends the retry budget; it refills at one second per second.
  std::optional<std::chrono::milliseconds> retry_budget(const std::string& name) const;
  /// The error of a fetch of the shard that failed since then; null if none did.
  std::exception_ptr since(Clock::time_point when, const std::string& name) const;

 private:
  struct Failure {
    Clock::time_point when;
    std::exception_ptr error;
  };
  const std::chrono::milliseconds retry_for_;
  mutable Mutex mutex_;
  std::map<std::string, Failure> by_name_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
