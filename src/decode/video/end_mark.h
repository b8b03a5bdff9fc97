#pragma once

#include <cstdint>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// Sees where VP8 ends early. What a packet's data does not suffice for, libav leaves as it was in
/// memory, and says nothing. So a mark lies in the last macroblock before a frame is decoded.
class EndMark {
 public:
  /// Marks the frames of this decoder, which it must outlive, if that is one of VP8.
  void watch(AVCodecContext& codec) noexcept;
  /// Whether the mark is still in the frame that was decoded last. Each frame is told of once.
  bool is_left() noexcept;

 private:
  static int get_buffer(AVCodecContext* codec, AVFrame* frame, int flags) noexcept;

  LibavPtr<AVBufferRef> buffer_;  ///< keeps `at_` in being
  std::uint8_t* at_ = nullptr;
};

}  // namespace shardwise::detail
