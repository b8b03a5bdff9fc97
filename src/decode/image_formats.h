#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "decode/image_codec.h"
#include "decode/rgb_image.h"

/// Functions that the image formats share. Each format decodes the request's crop at its scale. The
/// crop is in stored pixels here; the caller turns the image.
namespace shardwise::detail {

/// Forgiven damage. The image libraries' callbacks write here, so nothing throws or allocates.
class DecodeWarnings {
 public:
  /// Copies `text`, cut to kTextSize.
  void add(const char* text) noexcept;
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Returns each kind once.
  [[nodiscard]] std::vector<std::string> texts() const;

 private:
  static constexpr std::size_t kMaxKinds = 8;
  static constexpr std::size_t kTextSize = 120;

  std::uint64_t count_ = 0;
  std::size_t num_kinds_ = 0;
  char texts_[kMaxKinds][kTextSize];
};

/// Throws DecodeFailure unless height x width is at least 1 and at most `max_pixels`, and no side
/// exceeds kMaxImageSide.
SHARDWISE_EXPORT void require_pixels(std::uint64_t height, std::uint64_t width,
                                     std::uint64_t max_pixels);
/// Throws DecodeFailure unless `depth` is 16.
void require_16_bits(std::string_view format, std::size_t depth);
/// Returns the requested part of an image; all of it without a crop. Throws DecodeFailure unless
/// the crop lies inside.
Box wanted_box(const DecodeRequest& request, std::size_t height, std::size_t width);
/// Returns all of `box`, for an image that was not scaled.
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

/// The first frame of an animated WebP, or all of a still one.
struct WebpFrame {
  std::string_view bytes;
  Box place;  ///< position on the canvas
};
/// REQUIRES: `header` is read_webp_header(bytes).
WebpFrame first_webp_frame(std::string_view bytes, const ImageHeader& header);

}  // namespace shardwise::detail
