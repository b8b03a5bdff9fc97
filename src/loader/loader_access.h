#pragma once

#include <cstddef>
#include <vector>

#include "loader/load_meter.h"
#include "shardwise/base/export.h"
#include "shardwise/loader/loader.h"

namespace shardwise::detail {

/// What the tools do with a loader, and users do not.
struct LoaderAccess {
  /// From now on the loader keeps what it does, for a time line: the last `max_events`.
  SHARDWISE_EXPORT static void keep_events(Loader& loader, std::size_t max_events);
  /// Those, in the order in which they ended. Any thread.
  [[nodiscard]] SHARDWISE_EXPORT static std::vector<TraceEvent> events(const Loader& loader);
};

}  // namespace shardwise::detail
