#include "base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <ctime>

namespace shardwise::detail {
namespace {

constexpr char kLowerHexDigits[] = "0123456789abcdef";

/// Returns the length of the UTF-8 sequence at the front of `s`, or 0 if it is malformed.
std::size_t utf8_length(std::string_view s) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const auto continues = [&](std::size_t i) { return i < s.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return continues(1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if (b == 0xE0 && byte(1) < 0xA0) return 0;
    if (b == 0xED && byte(1) > 0x9F) return 0;
    return 3;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (b == 0xF0 && byte(1) < 0x90) return 0;
    if (b == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

/// Decodes a well-formed UTF-8 sequence.
std::uint32_t decoded(std::string_view sequence) noexcept {
  const auto first = static_cast<unsigned char>(sequence[0]);
  std::uint32_t c = sequence.size() == 1 ? first : first & (0x7FU >> sequence.size());
  for (const char byte : sequence.substr(1))
    c = c << 6 | (static_cast<unsigned char>(byte) & 0x3FU);
  return c;
}

/// True for control characters (U+0080 to U+009F), and for characters that a terminal shows as
/// nothing or as a blank. These are blanks other than U+0020, zero-width and bidirectional marks,
/// fillers, variation selectors and tags.
bool is_invisible(std::uint32_t c) noexcept {
  struct Range {
    std::uint32_t first, last;
  };
  static constexpr std::array<Range, 22> kInvisible = {
      {{0x80, 0xA0},       {0xAD, 0xAD},      {0x34F, 0x34F},     {0x61C, 0x61C},
       {0x115F, 0x1160},   {0x1680, 0x1680},  {0x17B4, 0x17B5},   {0x180B, 0x180F},
       {0x2000, 0x200F},   {0x2028, 0x202F},  {0x205F, 0x206F},   {0x2800, 0x2800},
       {0x3000, 0x3000},   {0x3164, 0x3164},  {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},
       {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},  {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3},
       {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}}};
  return c >= 0x80 && std::ranges::any_of(kInvisible, [&](const Range& range) {
           return range.first <= c && c <= range.last;
         });
}

}  // namespace

bool is_utf8(std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const std::size_t length = utf8_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string escaped(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto c = static_cast<unsigned char>(bytes[0]);
    std::size_t length = utf8_length(bytes);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\') {
      out += "\\\\";
    } else if (c < 0x20 || c == 0x7F || length == 0 ||
               is_invisible(decoded(bytes.substr(0, length)))) {
      length = std::max<std::size_t>(length, 1);
      for (const char byte : bytes.substr(0, length)) out += "\\x" + hex({&byte, 1});
    } else {
      out.append(bytes.substr(0, length));
    }
    bytes.remove_prefix(length);
  }
  return out;
}

std::string in_quotes(std::string_view bytes) {
  constexpr std::size_t kMax = 200;
  if (bytes.size() <= kMax) return "'" + escaped(bytes) + "'";
  return "'" + escaped(bytes.substr(0, kMax / 2)) + "..." +
         escaped(bytes.substr(bytes.size() - kMax / 2)) + "'";
}

std::string hex(std::string_view bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    out += kLowerHexDigits[b >> 4];
    out += kLowerHexDigits[b & 15];
  }
  return out;
}

bool is_hex(std::string_view text) noexcept {
  return text.find_first_not_of(kLowerHexDigits) == std::string_view::npos;
}

std::optional<std::int64_t> parse_int64(std::string_view text) noexcept {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::string utc_text(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string human_bytes(std::uint64_t num_bytes) {
  static constexpr std::array<const char*, 7> kUnits = {"B",   "KiB", "MiB", "GiB",
                                                        "TiB", "PiB", "EiB"};
  if (num_bytes < 1024) return std::to_string(num_bytes) + " B";
  double value = static_cast<double>(num_bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string human_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

}  // namespace shardwise::detail
