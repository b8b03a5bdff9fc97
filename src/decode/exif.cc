#include "decode/exif.h"

#include <cstddef>
#include <cstdint>

namespace shardwise::detail {
namespace {

constexpr std::uint64_t kOrientationTag = 0x0112;
constexpr std::uint64_t kShort = 3;
constexpr std::size_t kEntryBytes = 12;

/// The numbers of a TIFF block, in its byte order. What lies outside reads as 0.
class TiffNumbers {
 public:
  TiffNumbers(std::string_view tiff, bool big_endian) noexcept
      : tiff_(tiff), big_endian_(big_endian) {}

  std::uint64_t at(std::uint64_t offset, unsigned num_bytes) const noexcept {
    if (tiff_.size() < num_bytes || offset > tiff_.size() - num_bytes) return 0;
    std::uint64_t value = 0;
    for (unsigned i = 0; i < num_bytes; ++i) {
      const unsigned shift = 8 * (big_endian_ ? num_bytes - 1 - i : i);
      value |= std::uint64_t{static_cast<unsigned char>(tiff_[offset + i])} << shift;
    }
    return value;
  }

 private:
  std::string_view tiff_;
  bool big_endian_;
};

}  // namespace

unsigned exif_orientation(std::string_view exif) noexcept {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  if (exif.substr(0, kPrefix.size()) == kPrefix) exif.remove_prefix(kPrefix.size());
  const std::string_view mark = exif.substr(0, 2);
  if (mark != "II" && mark != "MM") return 1;
  const TiffNumbers numbers(exif, mark == "MM");
  if (numbers.at(2, 2) != 42) return 1;
  const std::uint64_t directory = numbers.at(4, 4);
  const std::uint64_t num_entries = numbers.at(directory, 2);
  for (std::uint64_t i = 0; i < num_entries; ++i) {
    const std::uint64_t entry = directory + 2 + i * kEntryBytes;
    if (numbers.at(entry, 2) != kOrientationTag) continue;
    const std::uint64_t value = numbers.at(entry + 8, 2);
    const bool is_one = numbers.at(entry + 2, 2) == kShort && numbers.at(entry + 4, 4) == 1;
    return is_one && value >= 1 && value <= 8 ? static_cast<unsigned>(value) : 1;
  }
  return 1;
}

}  // namespace shardwise::detail
