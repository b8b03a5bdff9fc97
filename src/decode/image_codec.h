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
/// The first bytes of an image determine its format.
/// Threads: every function is safe concurrently.
/// Errors: DecodeFailure if the bytes cannot be decoded.
namespace shardwise::detail {

/// The properties of an image that are known without decoding.
struct ImageHeader {
  std::size_t height = 0;  ///< height as stored, before turning
  std::size_t width = 0;
  unsigned orientation = 1;  ///< 1 to 8, see orientation_of(); 1 means upright
};

/// Reads the header data that precedes the pixels. Decodes no pixels and calls no image library.
SHARDWISE_EXPORT ImageHeader read_image_header(std::string_view bytes);

/// Maximum height and width of an image. Reading and resizing an image with a very long side needs
/// memory per row or column, many times the memory of its pixels.
constexpr std::size_t kMaxImageSide = std::size_t{1} << 20;

struct DecodeRequest {
  /// Maximum height * width of the whole image, even for a crop. Larger images, and images with a
  /// side above kMaxImageSide, are rejected before memory is allocated.
  std::uint64_t max_pixels = std::uint64_t{1} << 28;
  /// Reject damage that would otherwise be tolerated with a warning.
  bool strict = false;
  /// Turn and flip the image according to its orientation.
  bool apply_orientation = false;
  /// Keep 16-bit values as stored, in pixels of 6 bytes. Images with fewer bits are rejected.
  bool keep_16_bits = false;
  /// The part to decode, in pixels of the full-size image, after turning if that is requested. Its
  /// pixels equal those of a full decode. Data after the part's last row is not read, so damage in
  /// that data is not detected.
  std::optional<Box> crop{};
  /// Decode JPEGs at scale / 8 of their size (see choose_scale()). Other formats are decoded at
  /// full size.
  /// REQUIRES: 1 <= scale <= 8.
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
  /// Position of the requested part in the decoded image, in pixels. The part is the whole decoded
  /// image, unless scaling puts an edge of the part inside a pixel.
  RealBox box;
  std::vector<std::string> warnings;  ///< texts without repetitions, at most eight
};

/// Decodes a JPEG, PNG, WebP or binary PNM into `image`. Decodes the first frame of an animation.
///
/// Damage that affects no rows is tolerated with a warning. Damaged codes and an early
/// end-of-image marker in a JPEG are tolerated too, as in Pillow. A file that ends before all
/// pixels are read is rejected. Alpha is dropped. Colour profiles and gamma are not applied.
/// 16-bit values are scaled to 8 bits unless `request` keeps them.
SHARDWISE_EXPORT DecodeReport decode_rgb(std::string_view bytes, const DecodeRequest& request,
                                         RgbImage& image);

/// The minimum size for choose_scale().
enum class ScaleRule : std::uint8_t {
  kNotSmaller,  ///< the scaled image must be at least as large as wanted, in both directions
  /// The scaled image must have at least 3/4 of the wanted size; faster, less sharp.
  kThreeQuarters
};

/// Returns the smallest scale, in eighths, for decoding `height` x `width` pixels before a resize
/// to `wanted_height` x `wanted_width`. The result is 8, 4, 2 or 1, because libjpeg-turbo has
/// vector code only for these scales. It decodes at 7/8, 6/8 or 5/8 more slowly than at full size,
/// and at 3/8 more slowly than at 4/8.
SHARDWISE_EXPORT unsigned choose_scale(std::size_t height, std::size_t width,
                                       std::size_t wanted_height, std::size_t wanted_width,
                                       ScaleRule rule = ScaleRule::kNotSmaller) noexcept;

}  // namespace shardwise::detail
