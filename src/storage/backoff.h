#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// The retry budget of one fetch (Fetchers::Options::retry_for) and the pauses between its
/// attempts.
/// Threads: one.
class Backoff {
 public:
  Backoff(const Fetchers::Options& options, const Fetcher::Request& request)
      : options_(options), request_(request) {}

  int attempts() const noexcept { return attempts_; }
  void begin_attempt() noexcept { ++attempts_; }
  /// Returns the time left in the retry budget; 0 if it is spent.
  std::chrono::milliseconds time_left() const noexcept;
  /// Reports how many bytes of the file have arrived. A new maximum resets the failure counts and
  /// times, unless the transfer is slower than low_speed_bytes_per_second.
  void reached(std::uint64_t bytes) noexcept;

  struct Failure {
    std::optional<std::chrono::seconds> retry_after = {};  ///< the answer's Retry-After header
    /// Used instead of the retry budget if this timeout is shorter.
    std::optional<std::chrono::milliseconds> timeout = {};
    /// Called before a pause, if several attempts have failed or no bytes have arrived for long.
    /// Gets the time left in the budget.
    std::function<void(std::chrono::milliseconds left)> tell = nullptr;
  };
  /// Pauses until the next attempt. Returns false if the retry budget is spent. Errors: Cancelled.
  bool wait_for_next(const Failure& failure);
  /// Call this after an answer with wrong content. Pauses until the next attempt. Returns false if
  /// the retry budget is spent, or if the previous wrong answer was the same.
  /// @param what  text that identifies the wrong answer.
  bool wait_after_wrong(std::string_view what);

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds budget() const noexcept;
  Clock::duration delay(std::optional<std::chrono::seconds> retry_after) const;

  const Fetchers::Options& options_;
  const Fetcher::Request& request_;
  int attempts_ = 0;
  /// Number of failures since the last progress.
  int failures_ = 0;
  /// Time of the last progress, or of construction.
  Clock::time_point heard_ = Clock::now();
  /// First failure since the last progress; nullopt if none.
  std::optional<Clock::time_point> failing_since_ = {};
  std::uint64_t max_bytes_ = 0, bytes_when_it_failed_ = 0;
  std::string wrong_;
};

bool is_cancelled(const Fetcher::Request& request) noexcept;
/// Errors: Cancelled if the request was cancelled.
void check_cancelled(const Fetcher::Request& request);

}  // namespace shardwise
