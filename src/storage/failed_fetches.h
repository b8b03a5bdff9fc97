#pragma once

#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <string>

#include "base/fork.h"

namespace shardwise::detail {

/// What the fetches of this process failed with last, by the shard's name. Threads: internally
/// synchronised.
class FailedFetches {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param retry_for  how long a fetch is tried again; older failures are forgotten.
  explicit FailedFetches(std::chrono::milliseconds retry_for) : retry_for_(retry_for) {}

  /// Notes the exception that is being handled.
  void add(const std::string& name);
  void forget(const std::string& name);
  /// How long a fetch that begins now may be tried again. A failed fetch spends the retry budget;
  /// it refills at one second per second. Nothing: for the whole of retry_for.
  std::optional<std::chrono::milliseconds> retry_budget(const std::string& name) const;
  /// What a fetch of the shard failed with since then; null if none did.
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
