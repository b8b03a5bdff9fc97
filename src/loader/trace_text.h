#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "loader/load_meter.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns events in Chrome's trace format, for chrome://tracing and Perfetto: a JSON array of
/// complete events ("ph": "X") with times in us since `start`, and of the threads' names.
SHARDWISE_EXPORT std::string trace_text(const std::vector<TraceEvent>& events,
                                        std::chrono::steady_clock::time_point start);

}  // namespace shardwise::detail
