#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// How long one fetch is tried again, as Fetchers::Options::retry_for says, and the waits between
/// its attempts. One thread.
class Backoff {
 public:
  Backoff(const Fetchers::Options& options, const Fetcher::Request& request)
      : options_(options), request_(request) {}

  int attempts() const noexcept { return attempts_; }
  void begin_attempt() noexcept { ++attempts_; }
  /// So many bytes have come by now. If that is more than ever, and not too slow, failures are
  /// counted and timed anew.
  void reached(std::uint64_t bytes) noexcept;

  struct Failure {
    std::optional<std::chrono::seconds> retry_after = {};   ///< what the server asked for
    std::optional<std::chrono::milliseconds> timeout = {};  ///< in place of retry_for, if less
    /// Called before the wait with the time that is left, once the fetch has failed some times.
    std::function<void(std::chrono::milliseconds left)> tell = nullptr;
  };
  /// Waits for the time of the next attempt. False: there are to be no more. Errors: Cancelled.
  bool wait_for_next(const Failure& failure);
  /// The same, if what came was not what was asked for. False too if the attempt before ended in
  /// the same way.
  /// @param what  tells one wrong answer from another.
  bool wait_after_wrong(std::string_view what);

 private:
  using Clock = std::chrono::steady_clock;
  Clock::duration delay(std::optional<std::chrono::seconds> retry_after) const;

  const Fetchers::Options& options_;
  const Fetcher::Request& request_;
  int attempts_ = 0;
  int failures_ = 0;                                     ///< since the last progress
  Clock::time_point heard_ = Clock::now();               ///< when it began, or the last progress
  std::optional<Clock::time_point> failing_since_ = {};  ///< nothing: no failure since then
  std::uint64_t max_bytes_ = 0, bytes_when_it_failed_ = 0;
  std::string wrong_;
};

/// True if the request was cancelled.
bool is_cancelled(const Fetcher::Request& request) noexcept;
/// Throws Cancelled if the request was cancelled.
void check_cancelled(const Fetcher::Request& request);

}  // namespace shardwise
