#pragma once

#include <cstddef>
#include <cstdint>

#include "decode/resize_taps.h"
#include "decode/rgb_image.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Mirrored left to right, or top to bottom, or both.
struct Flips {
  bool horizontal = false;
  bool vertical = false;

  friend bool operator==(const Flips&, const Flips&) = default;
};

/// Takes the rows of an image, each once, in any order.
class SHARDWISE_EXPORT RowSink {
 public:
  virtual ~RowSink() = default;
  /// @param row  interleaved RGB, valid during the call.
  virtual void put(std::size_t y, const std::uint8_t* row) = 0;
};

/// The whole of an image of height x width pixels, or the part of it in `window`.
struct ResizedPart {
  std::size_t height = 0;
  std::size_t width = 0;
  Box window{};

  static ResizedPart whole(std::size_t height, std::size_t width) noexcept {
    return {height, width, {.height = height, .width = width}};
  }
};

/// A resize makes its rows first, for all of the rows of the image that it needs: of an image that
/// is one pixel wide, and very high, many more than there are pixels.
/// @param window  the part of the result that is wanted.
/// Errors: DecodeFailure, if that takes more than `max_pixels`, or what a usual image takes.
SHARDWISE_EXPORT void require_resizable(std::size_t height, const Box& window,
                                        std::uint64_t max_pixels);

/// Resizes `image` as Image.resize of Pillow 12 does, bit for bit: antialiased, first across, then
/// down, rounded to 8 bits between and after; then takes the window, and flips it. A direction
/// whose size stays the same is left alone. What lies outside the window is not computed. (Pillow
/// goes down first where an image is 100 times as tall as wide, and Pillow 13 wherever that is
/// quicker.)
/// REQUIRES: no side is 0; the window lies inside.
/// Threads: safe concurrently; scratch memory of each thread holds the rows between the directions.
SHARDWISE_EXPORT void resize(const RgbView& image, const ResizedPart& part, Filter filter,
                             Flips flips, RowSink& sink);

}  // namespace shardwise::detail
