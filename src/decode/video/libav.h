#pragma once

// Wrappers of libav* (FFmpeg 4.4 to 7.1): includes its C headers, owns its objects, gives it its
// input, and turns its messages into reasons of errors.

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
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "decode/video/media_view.h"
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

/// While such an object exists, libav's messages on this thread are not printed, and the last error
/// is stored.
///
/// libav has one message callback per process. The first LibavMessages object sets it. Messages of
/// threads without a LibavMessages are forwarded to libav's default callback.
class SHARDWISE_EXPORT LibavMessages {
 public:
  LibavMessages();
  ~LibavMessages();
  LibavMessages(const LibavMessages&) = delete;
  LibavMessages& operator=(const LibavMessages&) = delete;

  /// Returns this thread's last error since the outermost LibavMessages was constructed; empty if
  /// there was no error.
  static std::string last();
  /// Returns the number of errors on this thread so far, without harmless ones.
  static std::uint64_t count();
};

/// Throws a DecodeFailure with the text "<what> (<libav's last error, or the text of `code`>)".
[[noreturn]] void throw_libav_failure(std::string_view what, int code);

enum class Container : std::uint8_t { kMp4, kMatroska, kWav, kFlac, kMp3, kOgg };

/// Opens bytes with libav's demuxer for their container. Bytes in memory are read without copying.
/// Only the first bytes determine the container, and no other demuxer is tried. References to other
/// files or URLs are rejected.
/// Lifetime: the bytes must outlive the demuxer.
/// Errors: all calls that read throw the errors of reading the bytes.
class Demuxer {
 public:
  /// Errors: DecodeFailure if the container is unknown, damaged or truncated, or if its tables
  ///   state more samples than the bytes can contain.
  explicit Demuxer(MediaView bytes);
  ~Demuxer();
  Demuxer(const Demuxer&) = delete;
  Demuxer& operator=(const Demuxer&) = delete;

  AVFormatContext& format() noexcept { return *format_; }
  Container container() const noexcept { return container_; }
  unsigned num_streams() const noexcept { return format_->nb_streams; }
  AVStream& stream(unsigned number) noexcept { return *format_->streams[number]; }
  /// Selects the stream whose packets next() returns.
  void select(unsigned number);
  /// Packets up to this size always include their data.
  static constexpr int kSmall = 256;
  /// If `wanted` is false, packets are returned without their data, provided that the container's
  /// tables suffice to find them. The data is then not read.
  void read_data(bool wanted) noexcept;
  /// Returns a packet's data, even if next() returned the packet without it. Enough readable bytes
  /// follow the data to serve as libav's padding.
  std::string_view data_of(AVPacket& packet) const;
  /// Returns the same bytes without reading all of them.
  MediaView view_of(const AVPacket& packet) const noexcept;
  /// Packets whose first bytes are read though their data is left out, besides small ones.
  struct HeadersOf {
    bool keys = false;
    std::size_t packets_behind_key = 0;
  };
  /// Reads the first bytes of such packets at once, if the bytes are not in memory. Does nothing if
  /// the container has no table of its packets.
  /// @param first  number of a packet; later packets are looked at.
  /// Returns the packet before which to call this again.
  std::size_t prefetch_headers(std::size_t first, const HeadersOf& wanted);
  /// True if read_data(false) has an effect for this container.
  bool can_leave_out_data() const noexcept { return container_ == Container::kMp4; }
  /// Reads the next packet of the selected stream. Returns false at the end.
  /// Errors: DecodeFailure.
  bool next(AVPacket& packet);
  /// Moves to the last key packet at or before `time`, or to a packet near it. `time` is in the
  /// selected stream's time base. Returns false if libav failed.
  bool seek(std::int64_t time);
  /// Moves back to the first packet.
  void rewind();
  /// True if another FLAC may follow, whose sample numbers start again at 0.
  bool may_be_joined();

 private:
  struct Input;

  void open();
  void close() noexcept;
  /// Throws the error of a read that failed within a call of libav.
  void require_reads();
  bool is_last_of_wav(const AVPacket& packet);
  void check_ogg();

  const Container container_;
  const MediaView bytes_;
  const std::unique_ptr<Input> input_;
  AVIOContext* io_ = nullptr;
  AVFormatContext* format_ = nullptr;
  unsigned selected_ = 0;
  std::size_t checked_ = 0;  // bytes of an Ogg that check_ogg() has verified
  std::optional<bool> may_be_joined_;
};

/// Opens a decoder with one thread for the stream.
/// Errors: DecodeFailure if the codec is not allowed, or this build of libav lacks it.
LibavPtr<AVCodecContext> open_decoder(const AVStream& stream, std::uint64_t max_pixels);

}  // namespace shardwise::detail
