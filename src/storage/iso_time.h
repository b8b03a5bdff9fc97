#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace shardwise {

/// "2026-01-02T03:04:05Z", as services write times, also with a fraction or an offset. Nothing if
/// it is no time.
std::optional<std::chrono::system_clock::time_point> parse_iso_time(const std::string& text);

/// So many seconds after the beginning of 1970. What no time_point can hold, as a service's "never"
/// in the year 9999, is the latest or the first that it can.
std::chrono::system_clock::time_point time_after_1970(std::int64_t seconds);

/// So many seconds from now, in the same way.
std::chrono::system_clock::time_point time_from_now(std::int64_t seconds);

}  // namespace shardwise
