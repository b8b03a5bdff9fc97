#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/rgb_image.h"
#include "shardwise/base/export.h"

/// Decodes images to pixels. This header does not include the image libraries.
///
/// The first bytes determine the format.
/// Threads: every function is safe concurrently.
/// Errors: DecodeFailure for anything that cannot be decoded.
namespace shardwise::detail {

enum class ImageFormat : std::uint8_t { kJpeg, kPng, kWebp, kPnm };

/// An image's properties that are known without decoding.
struct ImageHeader {
  ImageFormat format = ImageFormat::kJpeg;
  std::size_t height = 0;  ///< in the file, before turning
  std::size_t width = 0;
  unsigned orientation = 1;  ///< 1 to 8, see orientation_of(); 1 is upright
};

/// Reads the markers, chunks or words before the pixels. Reads no pixel and calls no image library.
SHARDWISE_EXPORT ImageHeader read_image_header(std::string_view bytes);

/// Limit on an image's side. A very long side needs memory per row or column for reading and
/// resizing, many times that of its pixels.
constexpr std::size_t kMaxImageSide = std::size_t{1} << 20;

struct DecodeRequest {
  /// Larger images are refused before memory is allocated, even for a crop. Images with a side
  /// above kMaxImageSide are refused as well.
  std::uint64_t max_pixels = std::uint64_t{1} << 28;
  /// Refuses damage that is otherwise forgiven with a warning.
  bool strict = false;
  /// Turns and flips the image by its orientation.
  bool apply_orientation = false;
  /// Keeps 16-bit values as stored, in pixels of 6 bytes. Refuses images with fewer bits.
  bool keep_16_bits = false;
  /// The part to decode, in pixels of the full-size image, after turning if that is requested. Its
  /// pixels equal those of a full decode. Data after its last row is not read, so damage there goes
  /// unnoticed.
  std::optional<Box> crop{};
  /// JPEGs are decoded at scale / 8 of their size (see choose_scale()); other formats at full size.
  /// REQUIRES: 1 to 8.
  unsigned scale = 8;
};

/// A rectangle with fractional edges.
struct RealBox {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

struct DecodeReport {
  /// The requested part's position in the decoded image, in its pixels. It is the whole image,
  /// unless scaling moved its edges into pixels.
  RealBox box;
  std::uint64_t num_warnings = 0;
  std::vector<std::string> warnings;  ///< each kind once, at most eight
};

/// Decodes JPEG, PNG, WebP or binary PNM into `image`: the first frame, if it is an animation.
///
/// Damage that costs no rows is forgiven with a warning. In JPEGs, damaged codes and an early
/// end-of-image marker are also forgiven, as in Pillow. A file that ends before its pixels is
/// refused.
/// Alpha is dropped; colour profiles and gamma are not applied. 16 bits are scaled to 8 unless
/// `request` keeps them.
SHARDWISE_EXPORT DecodeReport decode_rgb(std::string_view bytes, const DecodeRequest& request,
                                         RgbImage& image);
/// Decodes a whole image, and drops the warnings.
SHARDWISE_EXPORT void decode_rgb(std::string_view bytes, std::uint64_t max_pixels, RgbImage& image);

/// Lower limit on the size for choose_scale().
enum class ScaleRule : std::uint8_t {
  kNotSmaller,    ///< the scaled image is at least as large as wanted, in both directions
  kThreeQuarters  ///< the scaled image has at least 3/4 of the wanted size: faster, less sharp
};

/// Returns the smallest scale, in eighths, to decode `height` x `width` pixels before a resize to
/// `wanted_height` x `wanted_width`. It is 8, 4, 2 or 1, for which libjpeg-turbo has vector code.
/// It decodes 7/8 to 5/8 more slowly than the full size, and 3/8 more slowly than 4/8.
SHARDWISE_EXPORT unsigned choose_scale(std::size_t height, std::size_t width,
                                       std::size_t wanted_height, std::size_t wanted_width,
                                       ScaleRule rule = ScaleRule::kNotSmaller) noexcept;

}  // namespace shardwise::detail
