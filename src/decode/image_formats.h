#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "decode/image_codec.h"
#include "decode/rgb_image.h"

/// Functions that the image formats share. Each format decodes the request's crop at the request's
/// scale. Here crops are in stored pixels, because the caller turns the decoded image.
namespace shardwise::detail {

/// Warnings about tolerated damage. The image libraries' callbacks add to it, so adding neither
/// throws nor allocates.
class DecodeWarnings {
 public:
  /// Copies `text`, truncated to kTextSize.
  void add(const char* text) noexcept;
  /// Returns the texts without repetitions.
  [[nodiscard]] std::vector<std::string> texts() const;

 private:
  static constexpr std::size_t kMaxKinds = 8;
  static constexpr std::size_t kTextSize = 120;

  std::size_t num_kinds_ = 0;
  char texts_[kMaxKinds][kTextSize];
};

/// Throws DecodeFailure if height x width is 0 or exceeds `max_pixels`, or if a side exceeds
/// kMaxImageSide.
SHARDWISE_EXPORT void require_pixels(std::uint64_t height, std::uint64_t width,
                                     std::uint64_t max_pixels);
/// Throws DecodeFailure if `depth` is not 16.
void require_16_bits(std::string_view format, std::size_t depth);
/// Returns the requested crop of an image, or the whole image if there is no crop. Throws
/// DecodeFailure if the crop is not inside the image.
Box wanted_box(const DecodeRequest& request, std::size_t height, std::size_t width);
/// Returns DecodeReport::box for an image that was decoded to exactly `box`, without scaling: the
/// whole decoded image.
RealBox whole_of(const Box& box) noexcept;

ImageHeader read_jpeg_header(std::string_view bytes);
ImageHeader read_png_header(std::string_view bytes);
ImageHeader read_webp_header(std::string_view bytes);
ImageHeader read_pnm_header(std::string_view bytes);

RealBox decode_jpeg(std::string_view bytes, const DecodeRequest& request, RgbImage& image,
                    DecodeWarnings& warnings);
RealBox decode_png(std::string_view bytes, const DecodeRequest& request, RgbImage& image,
                   DecodeWarnings& warnings);
RealBox decode_webp(std::string_view bytes, const DecodeRequest& request, RgbImage& image,
                    DecodeWarnings& warnings);
RealBox decode_pnm(std::string_view bytes, const DecodeRequest& request, RgbImage& image,
                   DecodeWarnings& warnings);

/// The first frame of an animated WebP, or the whole of a still image.
struct WebpFrame {
  std::string_view bytes;
  Box place;  ///< position of the frame on the canvas
};
/// REQUIRES: `header` is the result of read_webp_header(bytes).
WebpFrame first_webp_frame(std::string_view bytes, const ImageHeader& header);

}  // namespace shardwise::detail
