#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace shardwise {

/// Parses a time such as "2026-01-02T03:04:05Z", with an optional fraction or offset; nullopt if it
/// is malformed.
std::optional<std::chrono::system_clock::time_point> parse_iso_time(const std::string& text);

/// Returns the time this many seconds after the start of 1970. A time outside the range of
/// time_point, e.g. the year 9999 that a service uses for "never", is clamped.
std::chrono::system_clock::time_point time_after_1970(std::int64_t seconds);

/// Returns the time this many seconds from now, clamped in the same way.
std::chrono::system_clock::time_point time_from_now(std::int64_t seconds);

}  // namespace shardwise
