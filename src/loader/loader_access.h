#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "loader/engine.h"
#include "loader/epoch_plan.h"
#include "loader/load_meter.h"
#include "shardwise/base/export.h"
#include "shardwise/loader/loader.h"

namespace shardwise::detail {

/// Operations on a loader for the tools and for bindings of other languages, not for users.
struct LoaderAccess {
  /// Waits until next() need not wait, for `time` at most. Returns whether next() need not wait.
  /// Between two calls the caller can do other work. The batch stays in the loader until next(). A
  /// loader without threads makes the batch, however long that takes.
  /// Threads: the loader's.
  [[nodiscard]] SHARDWISE_EXPORT static bool wait(Loader& loader, std::chrono::nanoseconds time);
  /// Steps of the epoch that state() counts: without steps that failed after the last batch.
  [[nodiscard]] SHARDWISE_EXPORT static std::uint64_t steps_done(const Loader& loader);
  /// The bad samples left out since the loader began the epoch or resumed within it.
  /// Threads: the loader's.
  [[nodiscard]] SHARDWISE_EXPORT static const std::vector<BadRow>& bad_rows(const Loader& loader);
  /// From now on a run without a good sample is no error. For callers that list bad samples.
  SHARDWISE_EXPORT static void accept_all_bad(Loader& loader);
  /// The plan of the current epoch, or of its rest. It changes with set_epoch() and restore().
  /// Threads: the loader's.
  [[nodiscard]] SHARDWISE_EXPORT static const EpochPlan& plan(const Loader& loader);
  /// From now on, keeps the last `max_events` events, for a timeline.
  SHARDWISE_EXPORT static void keep_events(Loader& loader, std::size_t max_events);
  /// Returns the kept events in the order of their ends. Any thread.
  [[nodiscard]] SHARDWISE_EXPORT static std::vector<TraceEvent> events(const Loader& loader);
};

}  // namespace shardwise::detail
