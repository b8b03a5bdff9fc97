#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "decode/resize.h"
#include "decode/rgb_image.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The order of an image's dimensions in memory.
enum class PixelLayout : std::uint8_t {
  kChannelsFirst,  ///< [3, H, W]: three planes
  kChannelsLast    ///< [H, W, 3]: interleaved
};

/// Describes how an image is written into a batch's memory. A part of the image is resized and
/// flipped, and placed in a frame of height x width pixels. The rest of the frame is filled with
/// the colour `fill`.
struct PixelTarget {
  std::size_t height = 0;
  std::size_t width = 0;
  ResizedPart part{};   ///< by default, the whole of an image that has the frame's size
  std::size_t top = 0;  ///< position of the part in the frame, after flipping
  std::size_t left = 0;
  std::array<std::uint8_t, 3> fill{};
  PixelLayout layout = PixelLayout::kChannelsFirst;
  Filter filter = Filter::kBilinear;
  Flips flips{};
};

/// Maps each of the 256 values of each channel. Each result is computed once and then looked up, so
/// results are the same on every machine.
template <class Value>
using PixelTable = std::array<std::array<Value, 256>, 3>;

/// Returns the table for (x / 255 - mean) / std in float32, with every operation rounded.
SHARDWISE_EXPORT PixelTable<float> normalizing_table(const std::array<float, 3>& mean,
                                                     const std::array<float, 3>& std);
/// Converts to the bits of an IEEE 754 binary16 or a bfloat16, rounded to nearest, ties to even.
SHARDWISE_EXPORT std::uint16_t to_float16(float value) noexcept;
SHARDWISE_EXPORT std::uint16_t to_bfloat16(float value) noexcept;

/// Writes height * width * 3 values. If a table is given, writes the table's value for each.
/// REQUIRES: the part is inside the frame.
/// Threads: safe concurrently.
SHARDWISE_EXPORT void write_pixels(const RgbView& image, const PixelTarget& target,
                                   std::uint8_t* out);
SHARDWISE_EXPORT void write_pixels(const RgbView& image, const PixelTarget& target,
                                   const PixelTable<float>& table, float* out);
SHARDWISE_EXPORT void write_pixels(const RgbView& image, const PixelTarget& target,
                                   const PixelTable<std::uint16_t>& table, std::uint16_t* out);

/// Copies an image with 16-bit channels.
/// REQUIRES: image.pixel_bytes is 6; the part is the whole image, not resized, and is inside the
/// frame.
SHARDWISE_EXPORT void copy_pixels(const RgbView& image, const PixelTarget& target,
                                  std::uint16_t* out);

}  // namespace shardwise::detail
