#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/rgb_image.h"
#include "shardwise/base/export.h"

/// Image bytes to pixels. The image libraries do not show in this header.
///
/// The format is told by the first bytes. Every function may be called concurrently. What cannot be
/// decoded is a DecodeFailure.
namespace shardwise::detail {

enum class ImageFormat : std::uint8_t { kJpeg, kPng, kWebp, kPnm };

/// What can be known of an image without decoding it.
struct ImageHeader {
  ImageFormat format = ImageFormat::kJpeg;
  std::size_t height = 0;  ///< as stored: not turned
  std::size_t width = 0;
  unsigned orientation = 1;  ///< 1 to 8, as orientation_of() reads it; 1 is upright
};

/// Reads no pixel and calls no image library: the markers, chunks or words before them are walked.
SHARDWISE_EXPORT ImageHeader read_image_header(std::string_view bytes);

/// What is as long in one direction takes, to be read and resized, memory by the length of its rows
/// or columns, many times that of its pixels.
constexpr std::size_t kMaxImageSide = std::size_t{1} << 20;

struct DecodeRequest {
  /// Larger images are refused before memory is taken for them, also where only a part is wanted;
  /// so are those with a side of more than kMaxImageSide pixels.
  std::uint64_t max_pixels = std::uint64_t{1} << 28;
  /// Refuses what is otherwise forgiven with a warning.
  bool strict = false;
  /// Turns and flips the image as its orientation says.
  bool apply_orientation = false;
  /// Values of 16 bits are kept as stored, in pixels of 6 bytes. Images of fewer bits are refused.
  bool keep_16_bits = false;
  /// The part that is wanted, in pixels of the full-size image, turned if that is asked for. The
  /// pixels are those of a whole decode. Nothing behind its last row is read, so that damage there
  /// goes unnoticed.
  std::optional<Box> crop{};
  /// JPEGs are decoded at scale / 8 of their size (see choose_scale); others at their full size.
  /// REQUIRES: 1 to 8.
  unsigned scale = 8;
};

/// A rectangle between pixels.
struct RealBox {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

struct DecodeReport {
  /// Where what was asked for lies in the decoded image, in its pixels: all of it, unless it was
  /// scaled and its edges came to lie within pixels.
  RealBox box;
  std::uint64_t num_warnings = 0;
  std::vector<std::string> warnings;  ///< one of a kind, at most eight
};

/// Decodes JPEG, PNG, WebP or binary PNM into `image`.
///
/// Forgiven with a warning is what costs no rows, and in a JPEG also what Pillow forgives: damaged
/// codes, and an end-of-image marker before the end. A file that ends before its pixels do is
/// refused. Alpha is dropped, colour profiles and gamma are not applied, 16 bits are scaled to 8
/// unless they are to be kept.
/// Of an animation, the first frame is decoded.
SHARDWISE_EXPORT DecodeReport decode_rgb(std::string_view bytes, const DecodeRequest& request,
                                         RgbImage& image);
/// The same for a whole image; the warnings are dropped.
SHARDWISE_EXPORT void decode_rgb(std::string_view bytes, std::uint64_t max_pixels, RgbImage& image);

/// How far choose_scale may go.
enum class ScaleRule : std::uint8_t {
  kNotSmaller,    ///< the scaled image is at least as large as wanted, both ways
  kThreeQuarters  ///< it may have 3/4 of the wanted size: quicker, and less sharp
};

/// The smallest scale, in eighths, for `height` x `width` pixels of which a resize is to make
/// `wanted_height` x `wanted_width`. Of 8, 4, 2 and 1 only: libjpeg-turbo has vector code for
/// these, and decodes 7/8 to 5/8 more slowly than the whole, 3/8 more slowly than 4/8.
SHARDWISE_EXPORT unsigned choose_scale(std::size_t height, std::size_t width,
                                       std::size_t wanted_height, std::size_t wanted_width,
                                       ScaleRule rule = ScaleRule::kNotSmaller) noexcept;

}  // namespace shardwise::detail
