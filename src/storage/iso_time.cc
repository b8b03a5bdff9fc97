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
  // On overflow, time_after_1970() clamps the value.
  if (__builtin_add_overflow(now, seconds, &then)) then = seconds;
  return time_after_1970(then);
}

namespace {

/// Parses an offset of the form +HH:MM, +HHMM or +HH, or with a minus sign.
std::optional<std::int64_t> seconds_before_utc(std::string_view offset) {
  if (offset.empty() || (offset[0] != '+' && offset[0] != '-')) return std::nullopt;
  std::string digits(offset.substr(1));
  if (digits.size() == 5 && digits[2] == ':') digits.erase(2, 1);
  if (digits.size() == 2) digits += "00";
  if (digits.size() != 4 || !std::all_of(digits.begin(), digits.end(), is_digit)) {
    return std::nullopt;
  }
  const std::int64_t number = std::stoi(digits);
  const std::int64_t seconds = (number / 100 * 60 + number % 100) * 60;
  return offset[0] == '-' ? -seconds : seconds;
}

}  // namespace

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
  const std::optional<std::int64_t> offset = seconds_before_utc(rest);
  return time_after_1970(seconds - offset.value_or(0));
}

}  // namespace shardwise
