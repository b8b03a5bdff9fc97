#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// The retry budget of one fetch (Fetchers::Options::retry_for), and the waits between attempts.
/// Threads: one.
class Backoff {
 public:
  Backoff(const Fetchers::Options& options, const Fetcher::Request& request)
      : options_(options), request_(request) {}

  int attempts() const noexcept { return attempts_; }
  void begin_attempt() noexcept { ++attempts_; }
  /// Reports how many bytes have arrived. If that exceeds the maximum so far and is not too slow,
  /// the counts and times of failures start anew.
  void reached(std::uint64_t bytes) noexcept;

  struct Failure {
    std::optional<std::chrono::seconds> retry_after = {};   ///< Retry-After of the answer
    std::optional<std::chrono::milliseconds> timeout = {};  ///< replaces retry_for if shorter
    /// Called before the wait with the time left, after repeated failures or a long silence.
    std::function<void(std::chrono::milliseconds left)> tell = nullptr;
  };
  /// Waits until the next attempt; returns false if the retry budget is spent. Errors: Cancelled.
  bool wait_for_next(const Failure& failure);
  /// Waits until the next attempt after a wrong answer. Returns false if the retry budget is spent,
  /// or if the previous wrong answer was the same.
  /// @param what  tells one wrong answer from another.
  bool wait_after_wrong(std::string_view what);

 private:
  using Clock = std::chrono::steady_clock;
  Clock::duration delay(std::optional<std::chrono::seconds> retry_after) const;

  const Fetchers::Options& options_;
  const Fetcher::Request& request_;
  int attempts_ = 0;
  int failures_ = 0;                                     ///< since the last progress
  Clock::time_point heard_ = Clock::now();               ///< last progress, or the start
  std::optional<Clock::time_point> failing_since_ = {};  ///< nullopt if none failed since then
  std::uint64_t max_bytes_ = 0, bytes_when_it_failed_ = 0;
  std::string wrong_;
};

bool is_cancelled(const Fetcher::Request& request) noexcept;
/// Errors: Cancelled.
void check_cancelled(const Fetcher::Request& request);

}  // namespace shardwise
