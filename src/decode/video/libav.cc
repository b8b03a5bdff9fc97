#include "decode/video/libav.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/of_thread.h"
#include "decode/decode_failure.h"
#include "decode/video/container.h"

namespace shardwise::detail {
namespace {

// ---------------------------------------------------------------------------------------- messages

constexpr std::size_t kMessageSize = 240;

struct ThreadMessages {
  int depth = 0;             ///< number of LibavMessages objects on this thread
  std::uint64_t errors = 0;  ///< number of errors so far
  char last[kMessageSize] = {};
};

ThreadMessages& thread_messages() noexcept {
  return of_thread<ThreadMessages>([] {});
}

extern "C" {

static void take_message(void* context, int level, const char* format, va_list arguments) {
  ThreadMessages& messages = thread_messages();
  if (messages.depth == 0) {
    av_log_default_callback(context, level, format, arguments);
    return;
  }
  if (level > AV_LOG_ERROR) return;
  char text[kMessageSize];
  std::vsnprintf(text, sizeof text, format, arguments);
  const std::size_t size = std::strcspn(text, "\r\n");
  if (size == 0) return;  // the end of a line that was passed in parts
  text[size] = '\0';
  // Messages such as "mmco: unref short failure" are not errors. If decoding begins at the key
  // frame of an open GOP, the H.264 stream discards reference frames that were never decoded. If a
  // version of libav words the message differently, more frames than necessary are decoded.
  if (std::strncmp(format, "mmco:", 5) != 0) ++messages.errors;
  std::memcpy(messages.last, text, size + 1);
}

static int refuse_to_open(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) {
  return AVERROR(EPERM);
}

}  // extern "C"

const char* demuxer_name(Container container) noexcept {
  switch (container) {
    case Container::kMp4:
      return "mov";
    case Container::kMatroska:
      return "matroska";
    case Container::kWav:
      return "wav";
    case Container::kFlac:
      return "flac";
    case Container::kMp3:
      return "mp3";
    case Container::kOgg:
      return "ogg";
  }
  return "";
}

/// True for the codecs that such files use in practice. libav has several hundred other codecs,
/// which are old and rarely reviewed.
bool is_allowed(AVCodecID codec) noexcept {
  switch (codec) {
    case AV_CODEC_ID_H264:
    case AV_CODEC_ID_HEVC:
    case AV_CODEC_ID_AV1:
    case AV_CODEC_ID_VP8:
    case AV_CODEC_ID_VP9:
    case AV_CODEC_ID_MPEG4:
    case AV_CODEC_ID_MPEG2VIDEO:
    case AV_CODEC_ID_MPEG1VIDEO:
    case AV_CODEC_ID_H263:
    case AV_CODEC_ID_MJPEG:
    case AV_CODEC_ID_FFV1:
    case AV_CODEC_ID_PRORES:
    case AV_CODEC_ID_THEORA:
    case AV_CODEC_ID_AAC:
    case AV_CODEC_ID_MP3:
    case AV_CODEC_ID_MP2:
    case AV_CODEC_ID_FLAC:
    case AV_CODEC_ID_ALAC:
    case AV_CODEC_ID_VORBIS:
    case AV_CODEC_ID_OPUS:
    case AV_CODEC_ID_AC3:
    case AV_CODEC_ID_EAC3:
    case AV_CODEC_ID_ADPCM_MS:
    case AV_CODEC_ID_ADPCM_IMA_WAV:
      return true;
    default:
      return codec >= AV_CODEC_ID_FIRST_AUDIO && codec < AV_CODEC_ID_ADPCM_IMA_QT;  // PCM
  }
}

template <class T>
T* require_memory(T* pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}

}  // namespace

LibavPtr<AVFrame> make_frame() { return LibavPtr<AVFrame>(require_memory(av_frame_alloc())); }
LibavPtr<AVPacket> make_packet() { return LibavPtr<AVPacket>(require_memory(av_packet_alloc())); }

LibavMessages::LibavMessages() {
  static std::once_flag installed;
  std::call_once(installed, [] { av_log_set_callback(take_message); });
  ThreadMessages& messages = thread_messages();
  if (messages.depth++ == 0) messages.last[0] = '\0';
}

LibavMessages::~LibavMessages() { --thread_messages().depth; }

std::string LibavMessages::last() { return thread_messages().last; }
std::uint64_t LibavMessages::count() { return thread_messages().errors; }

void throw_libav_failure(std::string_view what, int code) {
  // This includes failed allocations of libav, because the sizes that it requests come from the
  // bytes.
  std::string reason = LibavMessages::last();
  if (reason.empty()) {
    char text[kMessageSize] = {};
    av_strerror(code, text, sizeof text);
    reason = text;
  }
  throw DecodeFailure(std::string(what) + " (" + reason + ")");
}

// ----------------------------------------------------------------------------------------- Demuxer

struct Demuxer::Input {
  MediaView bytes;
  std::size_t at = 0;
  bool leaves_out_data = false;
  const AVIOContext* io = nullptr;
  std::exception_ptr failure = nullptr;  // of the first read that failed

  /// True if libav reads directly into a packet instead of its buffer for headers.
  bool is_packet(const std::uint8_t* out) const noexcept {
    return out < io->buffer || out >= io->buffer + io->buffer_size;
  }

  static int read(void* opaque, std::uint8_t* out, int size) noexcept {
    auto& input = *static_cast<Input*>(opaque);
    if (input.failure) return AVERROR(EIO);  // libav may go on after an error
    const std::size_t count =
        std::min(static_cast<std::size_t>(size), input.bytes.size() - input.at);
    if (count == 0) return AVERROR_EOF;
    if (!input.leaves_out_data || size <= kSmall || !input.is_packet(out)) {
      try {
        input.bytes.copy(input.at, {reinterpret_cast<char*>(out), count});
      } catch (...) {
        input.failure = std::current_exception();
        return AVERROR(EIO);
      }
    }
    input.at += count;
    return static_cast<int>(count);
  }

  static std::int64_t seek(void* opaque, std::int64_t offset, int whence) noexcept {
    auto& input = *static_cast<Input*>(opaque);
    const auto size = static_cast<std::int64_t>(input.bytes.size());
    switch (whence & ~AVSEEK_FORCE) {
      case AVSEEK_SIZE:
        return size;
      case SEEK_SET:
        break;
      case SEEK_CUR:
        offset += static_cast<std::int64_t>(input.at);
        break;
      case SEEK_END:
        offset += size;
        break;
      default:
        return AVERROR(EINVAL);
    }
    if (offset < 0) return AVERROR(EINVAL);
    input.at = static_cast<std::size_t>(std::min(offset, size));
    return offset <= size ? offset : AVERROR_EOF;
  }
};

Demuxer::Demuxer(MediaView bytes)
    : container_(container_of(behind_tags(bytes))),
      bytes_(plausible_part(container_, behind_tags(bytes))),
      input_(std::make_unique<Input>()) {
  input_->bytes = bytes_;
  const LibavMessages messages;
  try {
    open();
  } catch (...) {
    close();
    throw;
  }
}

Demuxer::~Demuxer() {
  const LibavMessages messages;
  close();
}

void Demuxer::open() {
  constexpr int kBufferSize = 1 << 15;
  const AVInputFormat* demuxer = av_find_input_format(demuxer_name(container_));
  if (demuxer == nullptr) {
    throw DecodeFailure(std::string("this libavformat has no demuxer '") +
                        demuxer_name(container_) + "'");
  }
  auto* buffer = static_cast<unsigned char*>(require_memory(av_malloc(kBufferSize)));
  input_->at = 0;
  io_ = avio_alloc_context(buffer, kBufferSize, 0, input_.get(), Input::read, nullptr, Input::seek);
  if (io_ == nullptr) {
    av_free(buffer);
    throw std::bad_alloc();
  }
  input_->io = io_;
  format_ = require_memory(avformat_alloc_context());
  format_->pb = io_;
  format_->io_open = refuse_to_open;
  format_->flags |= AVFMT_FLAG_CUSTOM_IO;
  format_->max_streams = 64;
  format_->probesize = 1 << 20;
  // Allow no protocols. An empty list would allow all, so name a protocol that does not exist.
  AVDictionary* options = nullptr;
  av_dict_set(&options, "protocol_whitelist", "none", 0);
  av_dict_set(&options, "format_whitelist", demuxer->name, 0);
  const int result =
      avformat_open_input(&format_, "", const_cast<AVInputFormat*>(demuxer), &options);
  av_dict_free(&options);
  require_reads();
  if (result < 0) throw_libav_failure("the container cannot be read", result);
}

void Demuxer::close() noexcept {
  avformat_close_input(&format_);
  if (io_ == nullptr) return;
  av_freep(&io_->buffer);
  avio_context_free(&io_);
}

void Demuxer::require_reads() {
  if (input_->failure) std::rethrow_exception(std::exchange(input_->failure, nullptr));
}

void Demuxer::select(unsigned number) {
  selected_ = number;
  for (unsigned i = 0; i < num_streams(); ++i) {
    stream(i).discard = i == number ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
  }
}

void Demuxer::read_data(bool wanted) noexcept {
  if (!can_leave_out_data()) return;
  input_->leaves_out_data = !wanted;
  io_->direct = wanted ? 0 : 1;  // even small packets then bypass libav's buffer
}

std::string_view Demuxer::data_of(AVPacket& packet) const {
  const MediaView data = view_of(packet);
  char* const own = reinterpret_cast<char*>(packet.data);
  if (data.is_in_memory()) {
    const std::string_view bytes = data.view();
    const bool is_own = bytes.data() == own;
    const auto end = static_cast<std::size_t>(packet.pos) + bytes.size();
    if (is_own || bytes_.size() - end >= AV_INPUT_BUFFER_PADDING_SIZE) return bytes;
  }
  data.copy(0, {own, data.size()});
  return {own, data.size()};
}

MediaView Demuxer::view_of(const AVPacket& packet) const noexcept {
  const auto size = static_cast<std::size_t>(packet.size);
  const auto at = static_cast<std::size_t>(packet.pos);
  const bool is_there = packet.pos >= 0 && at <= bytes_.size() && size <= bytes_.size() - at;
  if (can_leave_out_data() && is_there) return bytes_.substr(at, size);
  return std::string_view(reinterpret_cast<const char*>(packet.data), size);
}

std::size_t Demuxer::prefetch_headers([[maybe_unused]] std::size_t first,
                                      [[maybe_unused]] const HeadersOf& wanted) {
#if LIBAVFORMAT_VERSION_MAJOR >= 59
  constexpr std::size_t kHeaderBytes = 1024, kMaxRanges = 256, kMaxBytes = std::size_t{1} << 20;
  if (bytes_.is_in_memory() || !can_leave_out_data()) return SIZE_MAX;
  const auto count = static_cast<std::size_t>(avformat_index_get_entries_count(&stream(selected_)));
  std::vector<MediaInput::Range> ranges;
  std::size_t packet = first, total = 0;
  std::size_t behind_key = SIZE_MAX;
  for (; packet < count && ranges.size() < kMaxRanges && total < kMaxBytes; ++packet) {
    const AVIndexEntry& entry =
        *avformat_index_get_entry(&stream(selected_), static_cast<int>(packet));
    const bool is_key = (entry.flags & AVINDEX_KEYFRAME) != 0;
    behind_key = is_key ? 0 : behind_key + (behind_key == SIZE_MAX ? 0 : 1);
    const bool is_wanted =
        entry.size <= kSmall || (is_key ? wanted.keys : behind_key <= wanted.packets_behind_key);
    if (!is_wanted || entry.pos < 0 || entry.size <= 0) continue;
    const auto begin = static_cast<std::size_t>(entry.pos);
    const auto end = begin + std::min(static_cast<std::size_t>(entry.size), kHeaderBytes);
    if (!ranges.empty() && ranges.back().begin <= begin &&
        begin <= ranges.back().end + kHeaderBytes) {
      total += std::max(end, ranges.back().end) - ranges.back().end;
      ranges.back().end = std::max(end, ranges.back().end);
    } else {
      total += end - begin;
      ranges.push_back({begin, end});
    }
  }
  bytes_.prefetch(std::move(ranges));
  return packet < count ? packet : SIZE_MAX;
#else
  return SIZE_MAX;  // libav does not give its index, so headers are read one by one
#endif
}

/// True for the last packet of a WAV of unknown size, if its samples are complete. libav marks this
/// packet as corrupt because it has fewer bytes than requested.
bool Demuxer::is_last_of_wav(const AVPacket& packet) {
  if (container_ != Container::kWav || input_->at != bytes_.size()) return false;
  const int block = std::max(stream(selected_).codecpar->block_align, 1);
  return packet.size > 0 && packet.size % block == 0 && !knows_size_of_wav(bytes_);
}

/// Checks the pages that libav has read so far. libav silently skips damaged or truncated pages,
/// which would shift later samples to an earlier time.
void Demuxer::check_ogg() {
  if (container_ != Container::kOgg) return;
  while (checked_ < input_->at) checked_ = end_of_ogg_page(bytes_, checked_);
}

bool Demuxer::next(AVPacket& packet) {
  for (;;) {
    const int result = av_read_frame(format_, &packet);
    require_reads();
    check_ogg();
    if (result == AVERROR_EOF) return false;
    if (result < 0) throw_libav_failure("the packets cannot be read", result);
    if (static_cast<unsigned>(packet.stream_index) == selected_) {
      if ((packet.flags & AV_PKT_FLAG_CORRUPT) == 0 || is_last_of_wav(packet)) return true;
      av_packet_unref(&packet);
      throw DecodeFailure("a packet is damaged or cut short");
    }
    av_packet_unref(&packet);
  }
}

bool Demuxer::seek(std::int64_t time) {
  const int result =
      av_seek_frame(format_, static_cast<int>(selected_), time, AVSEEK_FLAG_BACKWARD);
  require_reads();
  return result >= 0;
}

void Demuxer::rewind() {
  const int flags = format_->flags;
  close();
  open();
  format_->flags = flags;
  select(selected_);
}

bool Demuxer::may_be_joined() {
  constexpr std::string_view kBegin = "fLaC";
  if (!may_be_joined_) {
    may_be_joined_ = container_ == Container::kFlac && bytes_.find(kBegin, 1) != MediaView::npos;
  }
  return *may_be_joined_;
}

// ---------------------------------------------------------------------------------------- decoders

LibavPtr<AVCodecContext> open_decoder(const AVStream& stream, std::uint64_t max_pixels) {
  const AVCodecParameters& parameters = *stream.codecpar;
  const char* name = avcodec_get_name(parameters.codec_id);
  if (!is_allowed(parameters.codec_id)) {
    throw DecodeFailure(std::string("the codec ") + name + " is not supported");
  }
  const AVCodec* decoder = avcodec_find_decoder(parameters.codec_id);
  if (decoder == nullptr) {
    throw DecodeFailure(std::string("this libavcodec has no decoder for ") + name);
  }
  LibavPtr<AVCodecContext> codec(require_memory(avcodec_alloc_context3(decoder)));
  int result = avcodec_parameters_to_context(codec.get(), &parameters);
  // The loader has its own threads, and a single thread makes results reproducible.
  codec->thread_count = 1;
  codec->pkt_timebase = stream.time_base;
  // Codecs pad sizes to whole blocks, so this limit is larger than requested. The caller enforces
  // the exact limit.
  codec->max_pixels =
      static_cast<std::int64_t>(std::min<std::uint64_t>(max_pixels, INT64_MAX / 4) * 2 + (1 << 16));
  if (parameters.codec_id == AV_CODEC_ID_FLAC) {
    codec->err_recognition = AV_EF_CRCCHECK | AV_EF_EXPLODE;
  }
  if (result >= 0) result = avcodec_open2(codec.get(), decoder, nullptr);
  if (result < 0) throw_libav_failure("the decoder cannot be opened", result);
  return codec;
}

}  // namespace shardwise::detail
