#pragma once

#include <cstdint>
#include <vector>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// How a stored picture is turned for display. Swap x and y first, then mirror.
struct Turn {
  bool swaps_axes = false;
  bool mirrors_x = false;
  bool mirrors_y = false;

  bool is_identity() const noexcept { return !swaps_axes && !mirrors_x && !mirrors_y; }
};

/// Returns the turn that the stream's display matrix specifies.
/// Errors: DecodeFailure if the matrix's angle is not a multiple of 90 degrees.
Turn turn_of(const AVStream& stream);

/// Converts decoded frames to RGB, as FFmpeg's program does with `-pix_fmt rgb24`.
class RgbConverter {
 public:
  explicit RgbConverter(Turn turn) noexcept : turn_(turn) {}

  /// Writes uint8 [H, W, 3] with the size of the turned frame.
  /// Errors: DecodeFailure.
  void convert(const AVFrame& frame, std::uint8_t* out);

 private:
  /// The properties of frames that scaler_ depends on.
  struct Input {
    int width = 0;
    int height = 0;
    int format = -1;
    int matrix = -1;
    bool is_full_range = false;

    bool operator==(const Input&) const = default;
  };

  void prepare(const AVFrame& frame);
  void copy_turned(const AVFrame& frame, std::size_t stride, std::uint8_t* out) const;

  const Turn turn_;
  LibavPtr<SwsContext> scaler_;
  Input input_;
  std::vector<std::uint8_t> scratch_;
};

}  // namespace shardwise::detail
