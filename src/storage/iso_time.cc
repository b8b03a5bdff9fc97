#include "storage/iso_time.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "base/ascii.h"

namespace shardwise {

using std::chrono::system_clock;

system_clock::time_point time_after_1970(std::int64_t seconds) {
  constexpr auto first = std::chrono::ceil<std::chrono::seconds>(system_clock::time_point::min());
  constexpr auto last = std::chrono::floor<std::chrono::seconds>(system_clock::time_point::max());
  return system_clock::time_point(std::chrono::seconds(std::clamp<std::int64_t>(
      seconds, first.time_since_epoch().count(), last.time_since_epoch().count())));
}

system_clock::time_point time_from_now(std::int64_t seconds) {
  const std::int64_t now = system_clock::to_time_t(system_clock::now());
  std::int64_t then = 0;
  if (__builtin_add_overflow(now, seconds, &then)) then = seconds;  // clamped, too
  return time_after_1970(then);
}

std::optional<system_clock::time_point> parse_iso_time(const std::string& text) {
  std::tm parts{};
  int read = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &read) != 6) {
    return std::nullopt;
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  std::time_t seconds = ::timegm(&parts);
  std::string_view rest = std::string_view(text).substr(static_cast<std::size_t>(read));
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    while (!rest.empty() && is_digit(rest[0])) rest.remove_prefix(1);
  }
  int hours = 0, minutes = 0;
  char sign = 0;
  if (std::sscanf(std::string(rest).c_str(), "%c%2d:%2d", &sign, &hours, &minutes) == 3) {
    const int offset = hours * 3600 + minutes * 60;
    seconds += sign == '-' ? offset : -offset;
  }
  return time_after_1970(seconds);
}

}  // namespace shardwise
