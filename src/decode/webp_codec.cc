#include <webp/decode.h>

#include <algorithm>
#include <cstring>

#include "base/of_thread.h"
#include "decode/decode_failure.h"
#include "decode/image_formats.h"

namespace shardwise::detail {
namespace {

const char* webp_reason(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "WebP: not enough memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "WebP: the image uses a feature that libwebp does not support";
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "WebP: the data ends early";
    default:
      return "WebP: the data is damaged";
  }
}

/// Decodes the rows and columns of `box` into rows that are `stride` bytes apart.
void decode_webp_frame(std::string_view bytes, const Box& frame, const Box& box, std::uint8_t* out,
                       std::size_t stride) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0)
    throw DecodeFailure("WebP: libwebp has another version than at build time");
  VP8StatusCode status = WebPGetFeatures(data, bytes.size(), &config.input);
  if (status != VP8_STATUS_OK) throw DecodeFailure(webp_reason(status));
  if (static_cast<std::size_t>(config.input.height) != frame.height ||
      static_cast<std::size_t>(config.input.width) != frame.width) {
    throw DecodeFailure("WebP: a frame has another size than its header says");
  }
  config.options.use_cropping = box == Box{0, 0, frame.height, frame.width} ? 0 : 1;
  config.options.crop_left = static_cast<int>(box.left);
  config.options.crop_top = static_cast<int>(box.top);
  config.options.crop_width = static_cast<int>(box.width);
  config.options.crop_height = static_cast<int>(box.height);
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = out;
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = stride * box.height;
  status = WebPDecode(data, bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) throw DecodeFailure(webp_reason(status));
}

/// Returns `box` extended by the surrounding pixels that affect it. Chroma is interpolated from
/// neighbouring samples, and libwebp treats the edge of the decoded part as the edge of the image.
/// The result begins at an even row and column.
Box with_margin(const Box& box, const Box& frame) {
  constexpr std::size_t kMargin = 2;
  const auto begin = [&](std::size_t at) { return (at - std::min(at, kMargin)) / 2 * 2; };
  const std::size_t top = begin(box.top);
  const std::size_t left = begin(box.left);
  return {top, left, std::min(frame.height, box.top + box.height + kMargin) - top,
          std::min(frame.width, box.left + box.width + kMargin) - left};
}

/// Returns the intersection of `box` and `frame`, both in canvas coordinates; an empty box if they
/// do not overlap.
Box common_part(const Box& box, const Box& frame) {
  const std::size_t top = std::max(box.top, frame.top);
  const std::size_t left = std::max(box.left, frame.left);
  const std::size_t bottom = std::min(box.top + box.height, frame.top + frame.height);
  const std::size_t right = std::min(box.left + box.width, frame.left + frame.width);
  if (bottom <= top || right <= left) return {};
  return {top, left, bottom - top, right - left};
}

}  // namespace

RealBox decode_webp(std::string_view bytes, const DecodeRequest& request, RgbImage& image,
                    DecodeWarnings&) {
  if (request.keep_16_bits) require_16_bits("WebP", 8);
  const ImageHeader header = read_webp_header(bytes);
  require_pixels(header.height, header.width, request.max_pixels);
  const Box box = wanted_box(request, header.height, header.width);
  const WebpFrame frame = first_webp_frame(bytes, header);
  image.reshape(box.height, box.width);
  if (box == frame.place) {
    decode_webp_frame(frame.bytes, {0, 0, box.height, box.width}, {0, 0, box.height, box.width},
                      image.data(), box.width * 3);
    return whole_of(box);
  }
  const Box part = common_part(box, frame.place);
  if (!(part == box)) std::fill_n(image.data(), box.height * box.width * 3, std::uint8_t{0});
  if (part.height == 0) return whole_of(box);
  const Box in_frame{part.top - frame.place.top, part.left - frame.place.left, part.height,
                     part.width};
  const Box frame_size{0, 0, frame.place.height, frame.place.width};
  const Box decoded = with_margin(in_frame, frame_size);
  RgbImage& scratch = detail::of_thread<RgbImage>([] {});
  scratch.reshape(decoded.height, decoded.width);
  decode_webp_frame(frame.bytes, frame_size, decoded, scratch.data(), decoded.width * 3);
  const RgbView from = scratch.view().cropped(
      {in_frame.top - decoded.top, in_frame.left - decoded.left, part.height, part.width});
  for (std::size_t y = 0; y < part.height; ++y) {
    std::memcpy(image.row(part.top - box.top + y) + (part.left - box.left) * 3, from.row(y),
                part.width * 3);
  }
  return whole_of(box);
}

}  // namespace shardwise::detail
