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

/// Receives each row of an image once, in any order.
class SHARDWISE_EXPORT RowSink {
 public:
  virtual ~RowSink() = default;
  /// @param row  interleaved RGB, valid only during the call.
  virtual void put(std::size_t y, const std::uint8_t* row) = 0;
};

/// A resize to height x width, of which only the part in `window` is computed.
struct ResizedPart {
  std::size_t height = 0;
  std::size_t width = 0;
  Box window{};

  static ResizedPart whole(std::size_t height, std::size_t width) noexcept {
    return {height, width, {.height = height, .width = width}};
  }
};

/// Checks the memory that a resize needs between its two steps. The first step resizes all needed
/// input rows horizontally. For a narrow and very high image this takes many times the memory of
/// its pixels.
/// @param window  the requested part of the result.
/// Errors: DecodeFailure if the memory exceeds both `max_pixels` and the need of a usual image.
SHARDWISE_EXPORT void require_resizable(std::size_t height, const Box& window,
                                        std::uint64_t max_pixels);

/// Resizes `image` bit for bit like Image.resize of Pillow 12: antialiased, first horizontally,
/// then vertically, and rounded to 8 bits after each step. Takes the window of the result and flips
/// it. If the size in one direction is unchanged, that step is skipped. Pixels outside the window
/// are not computed.
/// Pillow differs in one case: it resizes vertically first if an image is 100 times as high as
/// wide. Pillow 13 does so whenever that is faster.
/// REQUIRES: no side is 0; the window is inside the result.
/// Threads: safe concurrently; each thread has its own scratch memory for the rows between the
///   steps.
SHARDWISE_EXPORT void resize(const RgbView& image, const ResizedPart& part, Filter filter,
                             Flips flips, RowSink& sink);

}  // namespace shardwise::detail
