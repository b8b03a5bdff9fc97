#pragma once

#include <cstdint>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// Detects VP8 frames whose data ends early. libav leaves the rest of such a frame's memory
/// unchanged, without an error. This class therefore writes a mark to the last macroblock before a
/// frame is decoded.
class EndMark {
 public:
  /// Marks the frames of this decoder if its codec is VP8. REQUIRES: this object outlives the
  /// decoder.
  void watch(AVCodecContext& codec) noexcept;
  /// True if the last decoded frame still contains its mark. Each frame is reported only once.
  bool is_left() noexcept;

 private:
  static int get_buffer(AVCodecContext* codec, AVFrame* frame, int flags) noexcept;

  LibavPtr<AVBufferRef> buffer_;  ///< keeps `at_` valid
  std::uint8_t* at_ = nullptr;
};

}  // namespace shardwise::detail
