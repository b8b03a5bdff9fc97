#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "decode/resize.h"
#include "decode/rgb_image.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Which of an image's three sizes comes first in memory.
enum class PixelLayout : std::uint8_t {
  kChannelsFirst,  ///< [3, H, W]: three planes
  kChannelsLast    ///< [H, W, 3]: interleaved
};

/// What an image becomes on its way into a batch's memory: a part of it after a resize, flipped,
/// somewhere in a frame of height x width pixels. What the part does not cover has the colour
/// `fill`.
struct PixelTarget {
  std::size_t height = 0;
  std::size_t width = 0;
  ResizedPart part{};   ///< as large as the frame if it is left out
  std::size_t top = 0;  ///< where the part begins in the frame, after flips
  std::size_t left = 0;
  std::array<std::uint8_t, 3> fill{};
  PixelLayout layout = PixelLayout::kChannelsFirst;
  Filter filter = Filter::kBilinear;
  Flips flips{};

  [[nodiscard]] std::size_t size() const noexcept { return height * width * 3; }
};

/// For each channel, what its 256 values become. As every value is computed once, and then looked
/// up, the results are the same on every machine.
template <class Value>
using PixelTable = std::array<std::array<Value, 256>, 3>;

/// (x / 255 - mean) / std in float32, every operation rounded.
SHARDWISE_EXPORT PixelTable<float> normalizing_table(const std::array<float, 3>& mean,
                                                     const std::array<float, 3>& std);
/// The bits of IEEE 754 binary16 and of bfloat16, rounded to the nearest, ties to even.
SHARDWISE_EXPORT std::uint16_t to_float16(float value) noexcept;
SHARDWISE_EXPORT std::uint16_t to_bfloat16(float value) noexcept;

/// Writes target.size() values; for the two that take a table, each value is looked up.
/// REQUIRES: the part lies inside the frame.
/// Threads: safe concurrently.
SHARDWISE_EXPORT void write_pixels(const RgbView& image, const PixelTarget& target,
                                   std::uint8_t* out);
SHARDWISE_EXPORT void write_pixels(const RgbView& image, const PixelTarget& target,
                                   const PixelTable<float>& table, float* out);
SHARDWISE_EXPORT void write_pixels(const RgbView& image, const PixelTarget& target,
                                   const PixelTable<std::uint16_t>& table, std::uint16_t* out);

/// As these, of an image with channels of 16 bits, which are copied.
/// REQUIRES: image.pixel_bytes is 6; the part is the image as it is.
SHARDWISE_EXPORT void copy_pixels(const RgbView& image, const PixelTarget& target,
                                  std::uint16_t* out);

/// Writes `image` as three planes of height x width bytes each, resized bilinearly if the size
/// differs.
SHARDWISE_EXPORT void write_planes(const RgbImage& image, std::size_t height, std::size_t width,
                                   std::uint8_t* planes);

}  // namespace shardwise::detail
