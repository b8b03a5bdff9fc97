#include "storage/iso_time.h"

#include <cstdio>
#include <ctime>
#include <string_view>

#include "base/ascii.h"

namespace shardwise {

std::optional<std::chrono::system_clock::time_point> parse_iso_time(const std::string& text) {
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
  return std::chrono::system_clock::from_time_t(seconds);
}

}  // namespace shardwise
