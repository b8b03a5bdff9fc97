#include "decode/video/rgb_converter.h"

#include <cmath>
#include <cstring>

#include "decode/decode_failure.h"

namespace shardwise::detail {
namespace {

constexpr std::size_t kAlignment = 64;

const std::int32_t* display_matrix(const AVStream& stream) {
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 102)
  const AVPacketSideData* data =
      av_packet_side_data_get(stream.codecpar->coded_side_data, stream.codecpar->nb_coded_side_data,
                              AV_PKT_DATA_DISPLAYMATRIX);
  return data != nullptr && data->size >= 9 * sizeof(std::int32_t)
             ? reinterpret_cast<const std::int32_t*>(data->data)
             : nullptr;
#else
  return reinterpret_cast<const std::int32_t*>(
      av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr));
#endif
}

/// True for pixel formats whose name implies the full range.
bool is_full_range_format(int format) noexcept {
  return format == AV_PIX_FMT_YUVJ420P || format == AV_PIX_FMT_YUVJ422P ||
         format == AV_PIX_FMT_YUVJ444P || format == AV_PIX_FMT_YUVJ440P ||
         format == AV_PIX_FMT_YUVJ411P;
}

}  // namespace

Turn turn_of(const AVStream& stream) {
  const std::int32_t* m = display_matrix(stream);
  if (m == nullptr) return {};
  // Apart from origin and scale, (x, y) is shown at (m0 x + m3 y, m1 x + m4 y). Like FFmpeg's
  // program, ignore angles up to half a degree.
  const auto is_small = [&](int a, int b) {
    constexpr double kHalfDegree = 0.0087;
    return std::abs(static_cast<double>(m[a])) <= kHalfDegree * std::abs(static_cast<double>(m[b]));
  };
  // False for a matrix of zeros, which some files have.
  const bool has_angle = !std::isnan(av_display_rotation_get(m));
  if (!has_angle) return {};
  if (is_small(1, 0) && is_small(3, 4)) return {false, m[0] < 0, m[4] < 0};
  if (is_small(0, 1) && is_small(4, 3)) return {true, m[3] < 0, m[1] < 0};
  throw DecodeFailure("the display matrix is not a rotation by a multiple of 90 degrees");
}

/// Reuses scaler_ if possible. libswscale's own cache of contexts is not used, because it fails:
/// libswscale changes the names of some formats inside its context.
void RgbConverter::prepare(const AVFrame& frame) {
  const bool is_full_range =
      frame.color_range == AVCOL_RANGE_JPEG || is_full_range_format(frame.format);
  const Input input{frame.width, frame.height, frame.format, frame.colorspace, is_full_range};
  if (scaler_ && input == input_) return;
  scaler_.reset(sws_getContext(input.width, input.height, static_cast<AVPixelFormat>(input.format),
                               input.width, input.height, AV_PIX_FMT_RGB24, SWS_BICUBIC, nullptr,
                               nullptr, nullptr));
  if (!scaler_) throw DecodeFailure("this libswscale cannot convert the pixels to RGB");
  // Do not set matrix and range for RGB, which has neither. libswscale converts RGB with more than
  // 8 bits to YUV internally, and would apply the stated range.
  const AVPixFmtDescriptor* const kind =
      av_pix_fmt_desc_get(static_cast<AVPixelFormat>(input.format));
  if (kind == nullptr || (kind->flags & AV_PIX_FMT_FLAG_RGB) == 0) {
    sws_setColorspaceDetails(scaler_.get(), sws_getCoefficients(input.matrix),
                             is_full_range ? 1 : 0, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0,
                             1 << 16, 1 << 16);
  }
  input_ = input;
}

void RgbConverter::convert(const AVFrame& frame, std::uint8_t* out) {
  const LibavMessages messages;
  prepare(frame);
  const auto height = static_cast<std::size_t>(frame.height);
  const std::size_t row = static_cast<std::size_t>(frame.width) * 3;
  // libswscale's vector code may skip or overwrite bytes after the last whole vector of a row. Rows
  // of other lengths are therefore converted in scratch memory.
  const bool fits = row % kAlignment == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
  const std::size_t stride = (row + 2 * kAlignment - 1) / kAlignment * kAlignment;
  std::uint8_t* to = out;
  if (!fits || !turn_.is_identity()) {
    scratch_.resize(stride * height + 2 * kAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(scratch_.data());
    to = scratch_.data() + (kAlignment - address % kAlignment);
  }
  std::uint8_t* const planes[4] = {to, nullptr, nullptr, nullptr};
  const int strides[4] = {static_cast<int>(to == out ? row : stride), 0, 0, 0};
  const int rows =
      sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, planes, strides);
  if (rows != frame.height) throw_libav_failure("the pixels cannot be converted to RGB", rows);
  if (to == out) return;
  if (!turn_.is_identity()) {
    copy_turned(frame, stride, out);
    return;
  }
  for (std::size_t y = 0; y < height; ++y) std::memcpy(out + y * row, to + y * stride, row);
}

void RgbConverter::copy_turned(const AVFrame& frame, std::size_t stride, std::uint8_t* out) const {
  const auto address = reinterpret_cast<std::uintptr_t>(scratch_.data());
  const std::uint8_t* const from = scratch_.data() + (kAlignment - address % kAlignment);
  const auto height = static_cast<std::size_t>(frame.height);
  const auto width = static_cast<std::size_t>(frame.width);
  const std::size_t out_height = turn_.swaps_axes ? width : height;
  const std::size_t out_width = turn_.swaps_axes ? height : width;
  for (std::size_t y = 0; y < out_height; ++y) {
    for (std::size_t x = 0; x < out_width; ++x, out += 3) {
      const std::size_t turned_x = turn_.mirrors_x ? out_width - 1 - x : x;
      const std::size_t turned_y = turn_.mirrors_y ? out_height - 1 - y : y;
      const std::size_t from_x = turn_.swaps_axes ? turned_y : turned_x;
      const std::size_t from_y = turn_.swaps_axes ? turned_x : turned_y;
      std::memcpy(out, from + from_y * stride + from_x * 3, 3);
    }
  }
}

}  // namespace shardwise::detail
