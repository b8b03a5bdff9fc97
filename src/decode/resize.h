#pragma once

#include <cstddef>
#include <cstdint>

#include "decode/resize_taps.h"
#include "decode/rgb_image.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Mirrors an image left to right, top to bottom, or both.
struct Flips {
  bool horizontal = false;
  bool vertical = false;

  friend bool operator==(const Flips&, const Flips&) = default;
};

/// Receives the rows of an image, each once, in any order.
class SHARDWISE_EXPORT RowSink {
 public:
  virtual ~RowSink() = default;
  /// @param row  interleaved RGB, valid during the call.
  virtual void put(std::size_t y, const std::uint8_t* row) = 0;
};

/// The part in `window` of an image resized to height x width.
struct ResizedPart {
  std::size_t height = 0;
  std::size_t width = 0;
  Box window{};

  static ResizedPart whole(std::size_t height, std::size_t width) noexcept {
    return {height, width, {.height = height, .width = width}};
  }
};

/// Checks the memory that a resize needs between its two steps: it resizes all needed input rows
/// horizontally first. For a narrow and very high image that is many times its pixels.
/// @param window  the requested part of the result.
/// Errors: DecodeFailure, if that exceeds both `max_pixels` and the needs of a usual image.
SHARDWISE_EXPORT void require_resizable(std::size_t height, const Box& window,
                                        std::uint64_t max_pixels);

/// Resizes `image` like Image.resize of Pillow 12, bit for bit: antialiased, first across, then
/// down, rounded to 8 bits after each. Then it takes the window and flips it. A direction of
/// unchanged size is skipped, and pixels outside the window are not computed.
/// Pillow differs in one case: it resizes down first if an image is 100 times as high as wide, and
/// Pillow 13 does so whenever that is faster.
/// REQUIRES: no side is 0; the window lies inside.
/// Threads: safe concurrently; each thread has scratch memory for the rows between the steps.
SHARDWISE_EXPORT void resize(const RgbView& image, const ResizedPart& part, Filter filter,
                             Flips flips, RowSink& sink);

}  // namespace shardwise::detail
