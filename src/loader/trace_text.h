#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "loader/load_meter.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Events in Chrome's trace format: a JSON array of complete events ("ph": "X"), times in us since
/// `start`, and the names of the threads. chrome://tracing and Perfetto show it.
SHARDWISE_EXPORT std::string trace_text(const std::vector<TraceEvent>& events,
                                        std::chrono::steady_clock::time_point start);

}  // namespace shardwise::detail
