#include "decode/exif.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace shardwise::detail {
namespace {

constexpr std::uint64_t kOrientationTag = 0x0112;
constexpr std::size_t kEntryBytes = 12;

/// Reads the numbers of a TIFF block in the block's byte order. Bytes outside the block read as 0.
class TiffNumbers {
 public:
  TiffNumbers(std::string_view tiff, bool big_endian) noexcept
      : tiff_(tiff), big_endian_(big_endian) {}

  std::uint64_t at(std::uint64_t offset, std::size_t num_bytes) const noexcept {
    if (tiff_.size() < num_bytes || offset > tiff_.size() - num_bytes) return 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < num_bytes; ++i) {
      const std::size_t shift = 8 * (big_endian_ ? num_bytes - 1 - i : i);
      value |= std::uint64_t{static_cast<unsigned char>(tiff_[offset + i])} << shift;
    }
    return value;
  }

 private:
  std::string_view tiff_;
  bool big_endian_;
};

/// Properties of a TIFF type. The table's index is the type's number. Pillow reads single bytes as
/// text, so they are not whole numbers here.
struct TiffType {
  std::size_t bytes = 0;  ///< bytes per value; 0 means that the type does not exist
  bool is_whole = false;
};
constexpr TiffType kTypes[] = {{},        {1},       {1},       {2, true}, {4, true}, {8},
                               {1, true}, {1},       {2, true}, {4, true}, {8},       {4},
                               {8},       {4, true}, {},        {},        {8, true}};

/// Returns the tag's value in the first directory; 0 if the block is not a TIFF; nullopt if the tag
/// is missing.
std::optional<std::uint64_t> orientation_tag(std::string_view exif) noexcept {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  for (int i = 0; i < 2 && exif.starts_with(kPrefix); ++i) exif.remove_prefix(kPrefix.size());
  if (exif.empty()) return std::nullopt;
  if (exif.size() < 8) return 0;
  const std::string_view mark = exif.substr(0, 2);
  const std::string_view version = exif.substr(2, 2);
  if (mark != "II" && mark != "MM") return 0;
  // Accept both orders, because some writers swap the version's bytes.
  if (version != std::string_view("*\0", 2) && version != std::string_view("\0*", 2)) return 0;
  const TiffNumbers numbers(exif, mark == "MM");
  const std::uint64_t directory = numbers.at(4, 4);
  const std::uint64_t num_entries = numbers.at(directory, 2);
  std::uint64_t size_of_all = 0;
  for (std::uint64_t i = 0; i < num_entries; ++i) {
    const std::uint64_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > exif.size()) return std::nullopt;
    const std::uint64_t code = numbers.at(entry + 2, 2);
    const TiffType type = code < std::size(kTypes) ? kTypes[code] : TiffType{};
    const std::uint64_t size = type.bytes * numbers.at(entry + 4, 4);
    std::uint64_t place = entry + 8;
    if (size > 4) {
      size_of_all += size;
      if (size_of_all > exif.size()) continue;
      place = numbers.at(place, 4);
      if (place + size > exif.size()) return std::nullopt;  // damaged: ignore the remaining tags
    }
    if (size == 0 || numbers.at(entry, 2) != kOrientationTag) continue;
    return type.is_whole ? numbers.at(place, type.bytes) : 0;
  }
  return std::nullopt;
}

/// Returns the digit after tiff:Orientation=" or <tiff:Orientation>; nullopt if it is missing.
std::optional<std::uint64_t> orientation_in_xmp(std::string_view xmp) noexcept {
  constexpr std::string_view kName = "tiff:Orientation";
  for (std::size_t at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at)) {
    at += kName.size();
    std::string_view rest = xmp.substr(at);
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
      return static_cast<std::uint64_t>(rest[0] - '0');
    }
  }
  return std::nullopt;
}

}  // namespace

unsigned orientation_of(std::string_view exif, std::string_view xmp) noexcept {
  std::optional<std::uint64_t> value = orientation_tag(exif);
  if (!value) value = orientation_in_xmp(xmp);
  return value && *value >= 1 && *value <= 8 ? static_cast<unsigned>(*value) : 1;
}

std::string raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  std::string block;
  std::size_t high = 0;
  bool is_low = false;
  for (const char c : text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (c == '\n' || c == ' ') continue;
    const std::size_t digit = kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c);
    if (digit == std::string_view::npos) return {};
    if (is_low) block += static_cast<char>(high * 16 + digit);
    high = digit;
    is_low = !is_low;
  }
  return is_low ? std::string() : block;
}

}  // namespace shardwise::detail
