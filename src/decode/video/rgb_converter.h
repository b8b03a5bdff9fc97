#pragma once

#include <cstdint>
#include <vector>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// How a stored picture is turned to be shown: swapping x and y first, then mirroring.
struct Turn {
  bool swaps_axes = false;
  bool mirrors_x = false;
  bool mirrors_y = false;

  bool is_identity() const noexcept { return !swaps_axes && !mirrors_x && !mirrors_y; }
};

/// What the stream's display matrix asks for. Errors: DecodeFailure: no turn by quarters.
Turn turn_of(const AVStream& stream);

/// Converts decoded frames to RGB, as FFmpeg's program does for `-pix_fmt rgb24`.
class RgbConverter {
 public:
  explicit RgbConverter(Turn turn) noexcept : turn_(turn) {}

  /// Writes uint8 [H, W, 3], as the turned frame's size is. Errors: DecodeFailure.
  void convert(const AVFrame& frame, std::uint8_t* out);

 private:
  /// What scaler_ depends on.
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
