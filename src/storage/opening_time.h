#pragma once

#include <chrono>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// How long this thread has waited in total for shards that were not open: until they were fetched,
/// unpacked, mapped and checked, by this thread or by another.
[[nodiscard]] SHARDWISE_EXPORT std::chrono::nanoseconds opening_time() noexcept;

/// Adds the time while it lives to this thread's opening_time(). They are not nested.
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
