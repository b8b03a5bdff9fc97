#pragma once

// What libav* (FFmpeg 4.4 to 7.1) needs around it: C headers, owners, bytes in memory as its input,
// its messages as reasons.

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

/// While one lives, what libav says on this thread is not printed, and its last error is kept.
///
/// libav has one callback for messages a process. It is set once, when the first of these is made;
/// messages of threads without one of these go on to libav's own callback.
class SHARDWISE_EXPORT LibavMessages {
 public:
  LibavMessages();
  ~LibavMessages();
  LibavMessages(const LibavMessages&) = delete;
  LibavMessages& operator=(const LibavMessages&) = delete;

  /// The last error of this thread; empty if there was none since the outermost of these was made.
  static std::string last();
  /// How many errors there were on this thread by now, without those of no consequence.
  static std::uint64_t count();
};

/// Throws a DecodeFailure: "<what> (<libav's last error, or what `code` stands for>)".
[[noreturn]] void throw_libav_failure(std::string_view what, int code);

enum class Container : std::uint8_t { kMp4, kMatroska, kWav, kFlac, kMp3, kOgg };

/// Opens bytes in memory with libav's demuxer for their container, and reads them in place: they
/// must outlive it. The container is told by its first bytes alone, and no other demuxer is ever
/// tried; whatever in the bytes names another file or URL is refused.
class Demuxer {
 public:
  /// Errors: DecodeFailure: no container that we read, a damaged one, one that ends early or whose
  ///   tables promise more samples than it can hold.
  explicit Demuxer(std::string_view bytes);
  ~Demuxer();
  Demuxer(const Demuxer&) = delete;
  Demuxer& operator=(const Demuxer&) = delete;

  AVFormatContext& format() noexcept { return *format_; }
  Container container() const noexcept { return container_; }
  unsigned num_streams() const noexcept { return format_->nb_streams; }
  AVStream& stream(unsigned number) noexcept { return *format_->streams[number]; }
  /// From here on only packets of this stream are read.
  void select(unsigned number);
  /// Packets of so many bytes always come with their data.
  static constexpr int kSmall = 256;
  /// Whether packets come without their data, where the container's tables suffice to find them:
  /// the bytes in between are then not touched.
  void read_data(bool wanted) noexcept;
  /// The data of a packet, also of one that came without. They lie in front of readable bytes, as
  /// many as libav wants there.
  std::string_view data_of(AVPacket& packet) const noexcept;
  /// Whether read_data(false) has an effect.
  bool can_leave_out_data() const noexcept { return container_ == Container::kMp4; }
  /// Reads the next packet of the selected stream; false at the end. Errors: DecodeFailure.
  bool next(AVPacket& packet);
  /// Moves to the last key packet at or before a time of the selected stream, in its time base, or
  /// near it; false: libav could not.
  bool seek(std::int64_t time);
  /// Begins from the first packet again.
  void rewind();
  /// Whether a FLAC may have another one behind it, whose numbers begin anew.
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
  std::size_t checked_ = 0;  // bytes of an Ogg, see check_ogg()
  std::optional<bool> may_be_joined_;
};

/// Opens a decoder of one thread for the stream. Errors: DecodeFailure: a codec that is not among
/// those we allow, or that this libav lacks.
LibavPtr<AVCodecContext> open_decoder(const AVStream& stream, std::uint64_t max_pixels);

}  // namespace shardwise::detail
