#pragma once

// Wrappers of libav* (FFmpeg 4.4 to 7.1): its C headers, owners of its objects, input from memory,
// and its messages as reasons.

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/channel_layout.h>
#include <libavutil/display.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswresample/swresample.h>
#include <libswscale/swscale.h>
}

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

struct LibavDeleter {
  void operator()(AVCodecContext* codec) const noexcept { avcodec_free_context(&codec); }
  void operator()(AVFrame* frame) const noexcept { av_frame_free(&frame); }
  void operator()(AVPacket* packet) const noexcept { av_packet_free(&packet); }
  void operator()(AVBufferRef* buffer) const noexcept { av_buffer_unref(&buffer); }
  void operator()(SwsContext* scaler) const noexcept { sws_freeContext(scaler); }
  void operator()(SwrContext* resampler) const noexcept { swr_free(&resampler); }
};
template <class T>
using LibavPtr = std::unique_ptr<T, LibavDeleter>;

SHARDWISE_EXPORT LibavPtr<AVFrame> make_frame();
SHARDWISE_EXPORT LibavPtr<AVPacket> make_packet();

/// While one lives, libav's messages on this thread are not printed, and the last error is kept.
///
/// libav has one message callback per process. The first LibavMessages sets it. Messages of threads
/// without a LibavMessages are forwarded to libav's own callback.
class SHARDWISE_EXPORT LibavMessages {
 public:
  LibavMessages();
  ~LibavMessages();
  LibavMessages(const LibavMessages&) = delete;
  LibavMessages& operator=(const LibavMessages&) = delete;

  /// Returns this thread's last error since the outermost LibavMessages was made; empty if there
  /// was no error.
  static std::string last();
  /// Returns the number of this thread's errors so far, without inconsequential ones.
  static std::uint64_t count();
};

/// Throws a DecodeFailure with "<what> (<libav's last error, or the text of `code`>)".
[[noreturn]] void throw_libav_failure(std::string_view what, int code);

enum class Container : std::uint8_t { kMp4, kMatroska, kWav, kFlac, kMp3, kOgg };

/// Opens bytes in memory with libav's demuxer for their container, and reads them in place. The
/// first bytes alone determine the container, and no other demuxer is tried. References to other
/// files or URLs are refused.
/// Lifetime: the bytes must outlive the demuxer.
class Demuxer {
 public:
  /// Errors: DecodeFailure if the container is unknown, damaged or truncated, or if its tables
  ///   promise more samples than it can hold.
  explicit Demuxer(std::string_view bytes);
  ~Demuxer();
  Demuxer(const Demuxer&) = delete;
  Demuxer& operator=(const Demuxer&) = delete;

  AVFormatContext& format() noexcept { return *format_; }
  Container container() const noexcept { return container_; }
  unsigned num_streams() const noexcept { return format_->nb_streams; }
  AVStream& stream(unsigned number) noexcept { return *format_->streams[number]; }
  /// Selects the stream whose packets are read from now on.
  void select(unsigned number);
  /// Packets up to this size always come with their data.
  static constexpr int kSmall = 256;
  /// With `wanted` false, packets come without their data if the container's tables suffice to find
  /// them. The data is then not touched.
  void read_data(bool wanted) noexcept;
  /// Returns a packet's data, even if it came without. The readable bytes after it suffice as
  /// libav's padding.
  std::string_view data_of(AVPacket& packet) const noexcept;
  /// True if read_data(false) has an effect.
  bool can_leave_out_data() const noexcept { return container_ == Container::kMp4; }
  /// Reads the next packet of the selected stream. Returns false at the end.
  /// Errors: DecodeFailure.
  bool next(AVPacket& packet);
  /// Moves to the last key packet at or before a time of the selected stream, in its time base, or
  /// near it. Returns false if libav failed.
  bool seek(std::int64_t time);
  /// Restarts at the first packet.
  void rewind();
  /// True if a FLAC may be followed by another one, whose numbers begin again at 0.
  bool may_be_joined() noexcept;

 private:
  struct Input;

  void open();
  void close() noexcept;
  bool is_last_of_wav(const AVPacket& packet);
  void check_ogg();

  const Container container_;
  const std::string_view bytes_;
  const std::unique_ptr<Input> input_;
  AVIOContext* io_ = nullptr;
  AVFormatContext* format_ = nullptr;
  unsigned selected_ = 0;
  std::size_t checked_ = 0;  // bytes of an Ogg that check_ogg() has verified
  std::optional<bool> may_be_joined_;
};

/// Opens a decoder with one thread for the stream.
/// Errors: DecodeFailure if the codec is not allowed, or this libav lacks it.
LibavPtr<AVCodecContext> open_decoder(const AVStream& stream, std::uint64_t max_pixels);

}  // namespace shardwise::detail
