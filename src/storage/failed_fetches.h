#pragma once

#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <string>

#include "base/fork.h"

namespace shardwise::detail {

/// The last failed fetch of each shard in this process. Threads: internally synchronised.
class FailedFetches {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param retry_for  retry budget of one fetch; failures older than this are forgotten.
  explicit FailedFetches(std::chrono::milliseconds retry_for) : retry_for_(retry_for) {}

  /// Records the exception that is currently being handled.
  void add(const std::string& name);
  void forget(const std::string& name);
  /// Returns how long a fetch that begins now may be retried; nullopt means the whole of retry_for.
  /// A failed fetch spends the budget, which then refills at one second per second.
  std::optional<std::chrono::milliseconds> retry_budget(const std::string& name) const;
  /// Returns the error of a fetch of this shard that failed after `when`; null if none failed.
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
