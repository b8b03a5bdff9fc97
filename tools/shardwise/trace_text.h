#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "loader/load_meter.h"

namespace shardwise::tools {

/// Returns events in Chrome's trace format, for chrome://tracing and Perfetto: a JSON array of
/// complete events ("ph": "X") with times in us since `start`, and of the threads' names.
std::string trace_text(const std::vector<detail::TraceEvent>& events,
                       std::chrono::steady_clock::time_point start);

}  // namespace shardwise::tools
