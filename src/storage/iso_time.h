#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace shardwise {

/// Parses "2026-01-02T03:04:05Z", with an optional fraction or offset; nullopt if malformed.
std::optional<std::chrono::system_clock::time_point> parse_iso_time(const std::string& text);

/// The time this many seconds after the start of 1970. A time outside the range of time_point, e.g.
/// a service's "never" in 9999, is clamped.
std::chrono::system_clock::time_point time_after_1970(std::int64_t seconds);

/// The time this many seconds from now, clamped as well.
std::chrono::system_clock::time_point time_from_now(std::int64_t seconds);

}  // namespace shardwise
