#pragma once

#include <chrono>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns the total time that this thread has waited for shards to be opened, i.e. fetched,
/// unpacked, mapped and checked, by this thread or by another.
[[nodiscard]] SHARDWISE_EXPORT std::chrono::nanoseconds opening_time() noexcept;

/// Adds the time from construction to destruction to this thread's opening_time(). Must not be
/// nested.
class SHARDWISE_EXPORT OpeningTimer {
 public:
  OpeningTimer() noexcept : begin_(std::chrono::steady_clock::now()) {}
  ~OpeningTimer();
  OpeningTimer(const OpeningTimer&) = delete;
  OpeningTimer& operator=(const OpeningTimer&) = delete;

 private:
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace shardwise::detail
