#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "decode/decode_failure.h"
#include "decode/image_codec.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

using detail::Box;
using detail::DecodeFailure;
using detail::DecodeRequest;
using detail::ImageHeader;
using detail::RgbImage;

constexpr std::uint64_t kMaxPixels = std::uint64_t{1} << 16;

/// Decodes an image into `image`. Returns nothing if it was refused.
std::optional<detail::RealBox> decode(std::string_view bytes, const DecodeRequest& request,
                                      RgbImage& image) {
  try {
    const detail::DecodeReport report = detail::decode_rgb(bytes, request, image);
    SHARDWISE_FUZZ_REQUIRE(report.warnings.size() <= 8);
    SHARDWISE_FUZZ_REQUIRE(!request.strict || report.warnings.empty());
    return report.box;
  } catch (const DecodeFailure&) {
    return std::nullopt;
  }
}

std::optional<ImageHeader> header_of(std::string_view bytes) {
  try {
    return detail::read_image_header(bytes);
  } catch (const DecodeFailure&) {
    return std::nullopt;
  }
}

/// Returns a box. Its top is `down` / 15 of the way to the last row, and its left side `across` /
/// 15 of the way to the last column. In each direction it covers half of the rest.
Box some_box(std::size_t height, std::size_t width, unsigned down, unsigned across) {
  const std::size_t top = (height - 1) * down / 15;
  const std::size_t left = (width - 1) * across / 15;
  return {top, left, (height - top + 1) / 2, (width - left + 1) / 2};
}

bool has_pixels_of(const RgbImage& part, const RgbImage& whole, const Box& box) {
  if (part.height() != box.height || part.width() != box.width) return false;
  const detail::RgbView from = whole.view().cropped(box);
  for (std::size_t y = 0; y < box.height; ++y) {
    if (std::memcmp(part.view().row(y), from.row(y), box.width * 3) != 0) return false;
  }
  return true;
}

}  // namespace

void image_target(std::string_view input) {
  if (input.size() < 2) return;
  const unsigned control = static_cast<unsigned char>(input[0]);
  const unsigned place = static_cast<unsigned char>(input[1]);
  const std::string_view bytes = input.substr(2);
  DecodeRequest request{.max_pixels = kMaxPixels,
                        .strict = (control & 1) != 0,
                        .apply_orientation = (control & 2) != 0};
  static thread_local RgbImage whole;
  static thread_local RgbImage part;
  const std::optional<ImageHeader> header = header_of(bytes);
  const auto box = decode(bytes, request, whole);
  SHARDWISE_FUZZ_REQUIRE(!box || (header && whole.height() * whole.width() <= kMaxPixels));
  if (!box) return;
  const bool swaps = request.apply_orientation && header->orientation >= 5;
  SHARDWISE_FUZZ_REQUIRE(whole.height() == (swaps ? header->width : header->height));
  SHARDWISE_FUZZ_REQUIRE(whole.width() == (swaps ? header->height : header->width));
  request.crop = some_box(whole.height(), whole.width(), place & 15, place >> 4);
  SHARDWISE_FUZZ_REQUIRE(decode(bytes, request, part));
  // A part of a damaged image may have other pixels than the whole image, because libjpeg
  // resynchronises where it skips.
  if (request.strict) SHARDWISE_FUZZ_REQUIRE(has_pixels_of(part, whole, *request.crop));
  request.scale = 1 + (control >> 2) % 8;
  const auto scaled = decode(bytes, request, part);
  SHARDWISE_FUZZ_REQUIRE(scaled && part.height() <= request.crop->height + 2);
  SHARDWISE_FUZZ_REQUIRE(scaled->top + scaled->height <= static_cast<double>(part.height()));
  SHARDWISE_FUZZ_REQUIRE(scaled->left + scaled->width <= static_cast<double>(part.width()));
  SHARDWISE_FUZZ_REQUIRE(scaled->top >= 0 && scaled->left >= 0);
}

}  // namespace shardwise::fuzz
