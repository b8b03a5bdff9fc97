#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace shardwise {

/// "2026-01-02T03:04:05Z", as services write times, also with a fraction or an offset. Nothing if
/// it is no time.
std::optional<std::chrono::system_clock::time_point> parse_iso_time(const std::string& text);

}  // namespace shardwise
