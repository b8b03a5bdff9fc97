#include "decode/video/end_mark.h"

#include <cstring>
#include <string_view>

namespace shardwise::detail {
namespace {

constexpr std::ptrdiff_t kBlock = 16;
/// These bytes almost never occur as the last row of a block in a picture.
constexpr std::string_view kMark("\xFF\1\xE3\x5A\0\xA7\x96\xFE\x11\xC8\2\x7F\xFD\x31\xB0\6",
                                 kBlock);

}  // namespace

void EndMark::watch(AVCodecContext& codec) noexcept {
  if (codec.codec_id != AV_CODEC_ID_VP8) return;
  codec.opaque = this;
  codec.get_buffer2 = get_buffer;
}

int EndMark::get_buffer(AVCodecContext* codec, AVFrame* frame, int flags) noexcept {
  const int result = avcodec_default_get_buffer2(codec, frame, flags);
  if (result < 0) return result;
  auto& mark = *static_cast<EndMark*>(codec->opaque);
  mark.buffer_.reset(av_buffer_ref(frame->buf[0]));
  if (!mark.buffer_) return AVERROR(ENOMEM);
  const auto last_block = [](int size) { return (size - 1) / kBlock * kBlock; };
  mark.at_ = frame->data[0] + (last_block(codec->height) + kBlock - 1) * frame->linesize[0] +
             last_block(codec->width);
  std::memcpy(mark.at_, kMark.data(), kMark.size());
  return result;
}

bool EndMark::is_left() noexcept {
  if (at_ == nullptr) return false;
  const bool is_left = std::memcmp(at_, kMark.data(), kMark.size()) == 0;
  at_ = nullptr;
  buffer_.reset();
  return is_left;
}

}  // namespace shardwise::detail
