#pragma once

#include <chrono>
#include <optional>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Counts the attempts of one fetch, and waits between them. One thread.
class Backoff {
 public:
  Backoff(const Fetchers::Options& options, const Fetcher::Request& request)
      : options_(options), request_(request) {}

  int attempts() const noexcept { return attempts_; }
  void begin_attempt() noexcept { ++attempts_; }
  /// The attempt delivered bytes: failures are counted from 0 again.
  void made_progress() noexcept { failures_ = 0; }
  /// Waits for the time of the next attempt. False: there are to be no more.
  /// @param retry_after  what the server asked for.
  /// Errors: Cancelled.
  bool wait_for_next(std::optional<std::chrono::seconds> retry_after);

 private:
  std::chrono::milliseconds delay(std::optional<std::chrono::seconds> retry_after) const;

  const Fetchers::Options& options_;
  const Fetcher::Request& request_;
  int attempts_ = 0;
  int failures_ = 0;  ///< since the last progress
};

/// True if the request was cancelled.
bool is_cancelled(const Fetcher::Request& request) noexcept;
/// Throws Cancelled if the request was cancelled.
void check_cancelled(const Fetcher::Request& request);

}  // namespace shardwise
