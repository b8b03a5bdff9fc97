#include "media_bytes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "decode/video/libav.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer)
// libx265 does not free all memory of an encoder.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libx265"; }
#endif
#endif

namespace shardwise::fuzz {
namespace {

using detail::LibavPtr;

int require(int result, const char* what) {
  if (result < 0) throw std::runtime_error(std::string(what) + ": " + std::to_string(result));
  return result;
}

AVDictionary* dictionary(const std::map<std::string, std::string>& options) {
  AVDictionary* result = nullptr;
  for (const auto& [name, value] : options) {
    av_dict_set(&result, name.c_str(), value.c_str(), 0);
  }
  return result;
}

/// A file in memory for a muxer, which may also seek backwards.
struct Output {
  std::string bytes;
  std::size_t at = 0;

  template <class Byte>
  static int write(void* opaque, Byte* data, int size) {
    auto& out = *static_cast<Output*>(opaque);
    const auto count = static_cast<std::size_t>(size);
    out.bytes.resize(std::max(out.bytes.size(), out.at + count));
    std::memcpy(out.bytes.data() + out.at, data, count);
    out.at += count;
    return size;
  }

  static std::int64_t seek(void* opaque, std::int64_t offset, int whence) {
    auto& out = *static_cast<Output*>(opaque);
    if (whence == AVSEEK_SIZE) return static_cast<std::int64_t>(out.bytes.size());
    if (whence != SEEK_SET) return AVERROR(EINVAL);
    out.at = static_cast<std::size_t>(offset);
    return offset;
  }
};

class Muxer {
 public:
  explicit Muxer(const std::string& container) {
    require(avformat_alloc_output_context2(&format_, nullptr, container.c_str(), nullptr),
            "no such container");
    constexpr int kBufferSize = 4096;
    auto* buffer = static_cast<unsigned char*>(av_malloc(kBufferSize));
    // Since libavformat 61, the callback's bytes are const. The template accepts both types.
    format_->pb =
        avio_alloc_context(buffer, kBufferSize, 1, &out_, nullptr, Output::write, Output::seek);
    format_->flags |= AVFMT_FLAG_BITEXACT;
  }
  ~Muxer() {
    av_freep(&format_->pb->buffer);
    avio_context_free(&format_->pb);
    avformat_free_context(format_);
  }
  Muxer(const Muxer&) = delete;
  Muxer& operator=(const Muxer&) = delete;

  AVFormatContext& format() { return *format_; }

  AVStream& add(const AVCodecContext& codec) {
    AVStream* stream = avformat_new_stream(format_, nullptr);
    require(avcodec_parameters_from_context(stream->codecpar, &codec), "parameters");
    stream->time_base = codec.time_base;
    return *stream;
  }

  void begin(const std::map<std::string, std::string>& options) {
    AVDictionary* named = dictionary(options);
    const int result = avformat_write_header(format_, &named);
    av_dict_free(&named);
    require(result, "the header cannot be written");
  }

  /// Encodes a frame; nullptr flushes the encoder.
  void encode(AVCodecContext& codec, AVStream& stream, const AVFrame* frame) {
    const LibavPtr<AVPacket> packet = detail::make_packet();
    require(avcodec_send_frame(&codec, frame), "a frame cannot be encoded");
    while (avcodec_receive_packet(&codec, packet.get()) >= 0) {
      if (packet->duration == 0 && codec.codec_type == AVMEDIA_TYPE_VIDEO) {
        packet->duration = av_rescale_q(1, av_inv_q(codec.framerate), codec.time_base);
      }
      av_packet_rescale_ts(packet.get(), codec.time_base, stream.time_base);
      packet->stream_index = stream.index;
      require(av_interleaved_write_frame(format_, packet.get()), "a packet cannot be written");
    }
  }

  std::string end() {
    require(av_write_trailer(format_), "the file cannot be ended");
    avio_flush(format_->pb);
    return std::move(out_.bytes);
  }

 private:
  Output out_;
  AVFormatContext* format_ = nullptr;
};

LibavPtr<AVCodecContext> open_encoder(const std::string& name, AVFormatContext& format,
                                      const std::map<std::string, std::string>& options,
                                      const auto& set_up) {
  const AVCodec* encoder = avcodec_find_encoder_by_name(name.c_str());
  if (encoder == nullptr) throw std::runtime_error("no encoder " + name);
  LibavPtr<AVCodecContext> codec(avcodec_alloc_context3(encoder));
  codec->thread_count = 1;
  codec->flags |= AV_CODEC_FLAG_BITEXACT;
  if ((format.oformat->flags & AVFMT_GLOBALHEADER) != 0) {
    codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  }
  set_up(*codec, *encoder);
  AVDictionary* named = dictionary(options);
  const int result = avcodec_open2(codec.get(), encoder, &named);
  av_dict_free(&named);
  require(result, "the encoder cannot be opened");
  return codec;
}

// ------------------------------------------------------------------------------------------ video

void fill(AVFrame& frame, const std::vector<int>& color, int number) {
  const bool is_deep_rgb = frame.format == AV_PIX_FMT_GBRP10LE;
  const bool is_rgb = frame.format == AV_PIX_FMT_BGR0 || is_deep_rgb;
  for (int y = 0; y < frame.height; ++y) {
    for (int x = 0; x < frame.width; ++x) {
      const int bit = y * 4 / frame.height * 4 + x * 4 / frame.width;
      const int light = (number >> bit & 1) != 0 ? 235 : 16;
      std::uint8_t* row = frame.data[0] + y * frame.linesize[0];
      if (is_deep_rgb) {
        for (int plane = 0; plane < 3; ++plane) {
          auto* const line =
              reinterpret_cast<std::uint16_t*>(frame.data[plane] + y * frame.linesize[plane]);
          line[x] = static_cast<std::uint16_t>(4 * light);
        }
      } else if (is_rgb) {
        std::memset(row + x * 4, light, 4);
      } else {
        row[x] = static_cast<std::uint8_t>(color.empty() ? light : color[0]);
      }
    }
  }
  if (is_rgb) return;
  int shift_x = 0;
  int shift_y = 0;
  av_pix_fmt_get_chroma_sub_sample(static_cast<AVPixelFormat>(frame.format), &shift_x, &shift_y);
  for (int plane = 1; plane < 3; ++plane) {
    const int value = color.empty() ? 128 : color[static_cast<std::size_t>(plane)];
    for (int y = 0; y < AV_CEIL_RSHIFT(frame.height, shift_y); ++y) {
      std::memset(frame.data[plane] + y * frame.linesize[plane], value,
                  static_cast<std::size_t>(AV_CEIL_RSHIFT(frame.width, shift_x)));
    }
  }
}

/// A triangle wave from 0 to 127.
int wave(int x) { return std::abs((x & 255) - 128) * 127 / 128; }

/// Draws moving waves and a little noise into the first plane.
void fill_moving(AVFrame& frame, int number) {
  auto noise = static_cast<std::uint32_t>(number);
  for (int y = 0; y < frame.height; ++y) {
    std::uint8_t* row = frame.data[0] + y * frame.linesize[0];
    for (int x = 0; x < frame.width; ++x) {
      noise = noise * 1664525U + 1013904223U;
      const int light = 40 + wave(2 * x + 3 * number + y) / 2 + wave(3 * y - 2 * number);
      row[x] = static_cast<std::uint8_t>(light + static_cast<int>(noise >> 29));
    }
  }
}

void set_turn(AVStream& stream, const std::vector<int>& turn) {
  std::int32_t matrix[9] = {turn[0] << 16, turn[1] << 16, 0, turn[2] << 16, turn[3] << 16, 0, 0, 0,
                            1 << 30};
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 102)
  AVPacketSideData* data = av_packet_side_data_new(&stream.codecpar->coded_side_data,
                                                   &stream.codecpar->nb_coded_side_data,
                                                   AV_PKT_DATA_DISPLAYMATRIX, sizeof matrix, 0);
  std::memcpy(data->data, matrix, sizeof matrix);
#else
  std::memcpy(av_stream_new_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, sizeof matrix), matrix,
              sizeof matrix);
#endif
}

// ------------------------------------------------------------------------------------------ sound

void set_layout(AVCodecContext& codec, int channels) {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(57, 28, 100)
  av_channel_layout_default(&codec.ch_layout, channels);
#else
  codec.channels = channels;
  codec.channel_layout = static_cast<std::uint64_t>(av_get_default_channel_layout(channels));
#endif
}

void set_layout(AVFrame& frame, const AVCodecContext& codec) {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(57, 28, 100)
  av_channel_layout_copy(&frame.ch_layout, &codec.ch_layout);
#else
  frame.channels = codec.channels;
  frame.channel_layout = codec.channel_layout;
#endif
}

LibavPtr<AVCodecContext> open_sound_encoder(const std::string& name, AVFormatContext& format,
                                            int sample_rate, int channels) {
  return open_encoder(name, format, {}, [&](AVCodecContext& codec, const AVCodec& encoder) {
    codec.sample_rate = sample_rate;
    codec.time_base = {1, sample_rate};
    for (const AVSampleFormat wanted : {AV_SAMPLE_FMT_U8, AV_SAMPLE_FMT_FLT, AV_SAMPLE_FMT_FLTP,
                                        AV_SAMPLE_FMT_S16P, AV_SAMPLE_FMT_S16}) {
      for (const AVSampleFormat* has = encoder.sample_fmts; *has != AV_SAMPLE_FMT_NONE; ++has) {
        if (*has == wanted) codec.sample_fmt = wanted;
      }
    }
    codec.strict_std_compliance = FF_COMPLIANCE_EXPERIMENTAL;
    set_layout(codec, channels);
  });
}

void set_sample(AVFrame& frame, int channels, int channel, int sample, double value) {
  const bool is_planar = av_sample_fmt_is_planar(static_cast<AVSampleFormat>(frame.format)) != 0;
  std::uint8_t* plane = frame.extended_data[is_planar ? channel : 0];
  const int at = is_planar ? sample : sample * channels + channel;
  if (frame.format == AV_SAMPLE_FMT_U8) {
    plane[at] = static_cast<std::uint8_t>(std::lround(value * 128) + 128);
  } else if (frame.format == AV_SAMPLE_FMT_FLTP || frame.format == AV_SAMPLE_FMT_FLT) {
    reinterpret_cast<float*>(plane)[at] = static_cast<float>(value);
  } else {
    reinterpret_cast<std::int16_t*>(plane)[at] =
        static_cast<std::int16_t>(std::lround(value * 32768));
  }
}

void encode_samples(Muxer& muxer, AVCodecContext& codec, AVStream& stream, int channels,
                    int num_samples, const std::function<std::int64_t(std::int64_t)>& clock = {}) {
  const int size = codec.frame_size > 0 ? codec.frame_size : 1024;
  for (int begin = 0; begin < num_samples; begin += size) {
    const LibavPtr<AVFrame> frame = detail::make_frame();
    frame->nb_samples = std::min(size, num_samples - begin);
    frame->format = codec.sample_fmt;
    frame->sample_rate = codec.sample_rate;
    frame->pts = clock ? clock(begin) : begin;
    set_layout(*frame, codec);
    require(av_frame_get_buffer(frame.get(), 0), "no memory");
    for (int i = 0; i < frame->nb_samples; ++i) {
      for (int c = 0; c < channels; ++c) {
        set_sample(*frame, channels, c, i, test_sound(c, begin + i, codec.sample_rate));
      }
    }
    muxer.encode(codec, stream, frame.get());
  }
  muxer.encode(codec, stream, nullptr);
}

}  // namespace

bool has_encoder(const std::string& name) {
  return avcodec_find_encoder_by_name(name.c_str()) != nullptr;
}

std::string encode_video(const VideoSpec& spec) {
  const detail::LibavMessages messages;
  Muxer muxer(spec.container);
  const auto codec = open_encoder(
      spec.codec, muxer.format(), spec.codec_options, [&](AVCodecContext& c, const AVCodec&) {
        c.width = spec.width;
        c.height = spec.height;
        c.pix_fmt = av_get_pix_fmt(spec.format.c_str());
        c.time_base = {1, 100 * spec.rate};
        c.framerate = {spec.rate, 1};
        c.gop_size = spec.group;
        c.max_b_frames = spec.b_frames;
        c.bit_rate = 2'000'000;
        c.colorspace = static_cast<AVColorSpace>(spec.matrix);
        c.color_range = spec.full_range ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
        if (spec.codec.starts_with("mpeg")) c.time_base = {1, spec.rate};
      });
  AVStream& stream = muxer.add(*codec);
  stream.avg_frame_rate = codec->framerate;
  if (!spec.turn.empty()) set_turn(stream, spec.turn);
  constexpr int kSoundRate = 8000;
  LibavPtr<AVCodecContext> sound;
  AVStream* sound_stream = nullptr;
  if (spec.with_sound) {
    sound = open_sound_encoder("aac", muxer.format(), kSoundRate, 1);
    sound_stream = &muxer.add(*sound);
  }
  muxer.begin(spec.muxer_options);
  for (int i = 0; i < spec.num_frames; ++i) {
    const LibavPtr<AVFrame> frame = detail::make_frame();
    frame->width = spec.width;
    frame->height = spec.height;
    frame->format = codec->pix_fmt;
    require(av_frame_get_buffer(frame.get(), 0), "no memory");
    fill(*frame, spec.color, i);
    if (spec.moves) fill_moving(*frame, i);
    const std::int64_t time =
        spec.times.empty() ? 100 * i : spec.times[static_cast<std::size_t>(i)];
    frame->pts = av_rescale_q(time, {1, 100 * spec.rate}, codec->time_base);
    muxer.encode(*codec, stream, frame.get());
  }
  muxer.encode(*codec, stream, nullptr);
  if (sound) {
    encode_samples(muxer, *sound, *sound_stream, 1, spec.num_frames * kSoundRate / spec.rate);
  }
  return muxer.end();
}

int shown_number(const std::uint8_t* rgb, int width, int height) {
  int number = 0;
  for (int bit = 0; bit < 16; ++bit) {
    const int y = (2 * (bit / 4) + 1) * height / 8;
    const int x = (2 * (bit % 4) + 1) * width / 8;
    if (rgb[3 * (y * width + x)] > 127) number |= 1 << bit;
  }
  return number;
}

std::string encode_sound(const SoundSpec& spec) {
  const detail::LibavMessages messages;
  Muxer muxer(spec.container);
  const auto codec =
      open_sound_encoder(spec.codec, muxer.format(), spec.sample_rate, spec.channels);
  AVStream& stream = muxer.add(*codec);
  muxer.begin(spec.muxer_options);
  const auto with_gap = [&](std::int64_t sample) {
    return sample < spec.num_samples / 2 ? sample : sample + spec.gap;
  };
  encode_samples(muxer, *codec, stream, spec.channels, spec.num_samples,
                 spec.clock ? spec.clock : with_gap);
  return muxer.end();
}

double test_sound(int channel, std::int64_t sample, int sample_rate) {
  const double t = static_cast<double>(sample) / sample_rate;
  return 0.25 * std::sin(2 * M_PI * 440 * (channel + 1) * t) +
         0.25 * std::sin(2 * M_PI * (110 + 70 * channel) * t);
}

}  // namespace shardwise::fuzz
