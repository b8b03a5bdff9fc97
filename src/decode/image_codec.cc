#include "decode/image_codec.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/assert.h"
#include "base/of_thread.h"
#include "base/text.h"
#include "decode/decode_failure.h"
#include "decode/image_formats.h"
#include "decode/orientation.h"

namespace shardwise::detail {
namespace {

/// The functions that read a format's headers and decode its images.
struct ImageCodec {
  ImageHeader (*read_header)(std::string_view);
  RealBox (*decode)(std::string_view, const DecodeRequest&, RgbImage&, DecodeWarnings&);
};

ImageCodec image_codec_of(std::string_view bytes) {
  if (bytes.starts_with("\xFF\xD8\xFF")) return {read_jpeg_header, decode_jpeg};
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) return {read_png_header, decode_png};
  if (bytes.starts_with("RIFF") && bytes.size() >= 12 && bytes.substr(8, 4) == "WEBP")
    return {read_webp_header, decode_webp};
  if (bytes.starts_with("P5") || bytes.starts_with("P6")) return {read_pnm_header, decode_pnm};
  throw DecodeFailure(bytes.empty()
                          ? "the data is empty"
                          : "the first bytes are not those of JPEG, PNG, WebP or binary PNM");
}

/// Decodes the requested part as stored, then turns it upright.
RealBox decode_turned(std::string_view bytes, const DecodeRequest& request, const ImageCodec& codec,
                      RgbImage& image, DecodeWarnings& warnings) {
  const ImageHeader header = codec.read_header(bytes);
  const Orientation orientation(header.orientation);
  DecodeRequest stored = request;
  if (request.crop) {
    const bool swaps = orientation.swaps;
    const Box box = wanted_box(request, swaps ? header.width : header.height,
                               swaps ? header.height : header.width);
    stored.crop = orientation.stored(box, header.height, header.width);
  }
  if (header.orientation == 1) return codec.decode(bytes, stored, image, warnings);
  RgbImage& scratch = detail::of_thread<RgbImage>([] {});
  const RealBox box = codec.decode(bytes, stored, scratch, warnings);
  orientation.turn(scratch, image);
  return orientation.upright(box, scratch.height(), scratch.width());
}

}  // namespace

void DecodeWarnings::add(const char* text) noexcept {
  char cut[kTextSize];
  std::snprintf(cut, sizeof cut, "%s", text);
  for (std::size_t i = 0; i < num_kinds_; ++i) {
    if (std::strcmp(texts_[i], cut) == 0) return;
  }
  if (num_kinds_ < kMaxKinds) std::memcpy(texts_[num_kinds_++], cut, sizeof cut);
}

std::vector<std::string> DecodeWarnings::texts() const { return {texts_, texts_ + num_kinds_}; }

void require_pixels(std::uint64_t height, std::uint64_t width, std::uint64_t max_pixels) {
  if (height == 0 || width == 0) throw DecodeFailure("the image has no pixels");
  if (width > max_pixels / height) {
    throw DecodeFailure("the image of " + size_text(height, width) + " exceeds the limit of " +
                        human_count(max_pixels) + " pixels (max_pixels)");
  }
  if (std::max(height, width) > kMaxImageSide) {
    throw DecodeFailure("the image of " + size_text(height, width) + " has a side of more than " +
                        human_count(kMaxImageSide) + " pixels");
  }
}

void require_16_bits(std::string_view format, std::size_t depth) {
  if (depth == 16) return;
  throw DecodeFailure(std::string(format) + ": the values have " + std::to_string(depth) +
                      " bits, but uint16 needs 16");
}

Box wanted_box(const DecodeRequest& request, std::size_t height, std::size_t width) {
  if (!request.crop) return {0, 0, height, width};
  const Box& box = *request.crop;
  const bool is_inside = box.height > 0 && box.width > 0 && box.height <= height &&
                         box.width <= width && box.top <= height - box.height &&
                         box.left <= width - box.width;
  if (!is_inside) {
    throw DecodeFailure("the crop exceeds the image of " + size_text(height, width));
  }
  return box;
}

RealBox whole_of(const Box& box) noexcept {
  return {0, 0, static_cast<double>(box.height), static_cast<double>(box.width)};
}

ImageHeader read_image_header(std::string_view bytes) {
  const ImageHeader header = image_codec_of(bytes).read_header(bytes);
  if (header.height == 0 || header.width == 0) throw DecodeFailure("the image has no pixels");
  return header;
}

DecodeReport decode_rgb(std::string_view bytes, const DecodeRequest& request, RgbImage& image) {
  SHARDWISE_ASSERT(request.scale >= 1 && request.scale <= 8);
  const ImageCodec codec = image_codec_of(bytes);
  DecodeWarnings warnings;
  DecodeReport report;
  report.box = request.apply_orientation ? decode_turned(bytes, request, codec, image, warnings)
                                         : codec.decode(bytes, request, image, warnings);
  report.warnings = warnings.texts();
  return report;
}

unsigned choose_scale(std::size_t height, std::size_t width, std::size_t wanted_height,
                      std::size_t wanted_width, ScaleRule rule) noexcept {
  // `scale` counts eighths and `quarters` counts quarters, so all numbers are integers.
  const std::size_t quarters = rule == ScaleRule::kNotSmaller ? 4 : 3;
  const auto suffices = [&](std::size_t size, std::size_t wanted, unsigned scale) {
    return size * scale * 4 >= wanted * 8 * quarters;
  };
  for (const unsigned scale : {1u, 2u, 4u}) {
    if (suffices(height, wanted_height, scale) && suffices(width, wanted_width, scale)) {
      return scale;
    }
  }
  return 8;
}

}  // namespace shardwise::detail
