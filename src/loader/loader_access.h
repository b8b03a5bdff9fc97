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

/// What the tools, and bindings of other languages, do with a loader, and users do not.
struct LoaderAccess {
  /// Waits until next() needs not, for `time` at most; true if it needs not. So a caller may look
  /// after other things while it waits, and no batch is taken that it does not use. A loader
  /// without threads makes the batch, however long that takes. The loader's thread.
  [[nodiscard]] SHARDWISE_EXPORT static bool wait(Loader& loader, std::chrono::nanoseconds time);
  /// Steps of the epoch that state() counts: not one that failed last.
  [[nodiscard]] SHARDWISE_EXPORT static std::uint64_t steps_done(const Loader& loader);
  /// The bad samples that were left out since the loader began the epoch, or its rest. The
  /// loader's thread.
  [[nodiscard]] SHARDWISE_EXPORT static const std::vector<BadRow>& bad_rows(const Loader& loader);
  /// From now on a run without a good sample is not an error, for callers that list bad samples.
  SHARDWISE_EXPORT static void accept_all_bad(Loader& loader);
  /// From now on the loader keeps what it does, for a time line: the last `max_events`.
  SHARDWISE_EXPORT static void keep_events(Loader& loader, std::size_t max_events);
  /// Those, in the order in which they ended. Any thread.
  [[nodiscard]] SHARDWISE_EXPORT static std::vector<TraceEvent> events(const Loader& loader);
};

}  // namespace shardwise::detail
