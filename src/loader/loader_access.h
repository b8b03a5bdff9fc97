#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "loader/engine.h"
#include "loader/load_meter.h"
#include "shardwise/base/export.h"
#include "shardwise/loader/loader.h"

namespace shardwise::detail {

/// Operations on a loader for the tools and for bindings of other languages, not for users.
struct LoaderAccess {
  /// Waits, for `time` at most, until next() need not wait; returns whether that is so. A caller
  /// can do other work between two calls, and takes no batch before it uses one. A loader without
  /// threads makes the batch, however long that takes.
  /// Threads: the loader's.
  [[nodiscard]] SHARDWISE_EXPORT static bool wait(Loader& loader, std::chrono::nanoseconds time);
  /// Steps of the epoch that state() counts. Steps that failed since the last batch do not count.
  [[nodiscard]] SHARDWISE_EXPORT static std::uint64_t steps_done(const Loader& loader);
  /// The bad samples left out since the loader began the epoch, or the rest of one.
  /// Threads: the loader's.
  [[nodiscard]] SHARDWISE_EXPORT static const std::vector<BadRow>& bad_rows(const Loader& loader);
  /// Accepts runs without a good sample from now on, for callers that list bad samples.
  SHARDWISE_EXPORT static void accept_all_bad(Loader& loader);
  /// Keeps the last `max_events` events from now on, for a time line.
  SHARDWISE_EXPORT static void keep_events(Loader& loader, std::size_t max_events);
  /// Returns the kept events, in the order in which they ended. Any thread.
  [[nodiscard]] SHARDWISE_EXPORT static std::vector<TraceEvent> events(const Loader& loader);
};

}  // namespace shardwise::detail
