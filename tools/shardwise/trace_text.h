#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "loader/load_meter.h"

namespace shardwise::tools {

/// Chrome's trace format: a JSON array of complete events ("ph": "X"), times in us from `start` on,
/// and the names of the threads. chrome://tracing and Perfetto show it.
std::string trace_text(const std::vector<detail::TraceEvent>& events,
                       std::chrono::steady_clock::time_point start);

}  // namespace shardwise::tools
