#include "decode/video/audio_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "base/text.h"
#include "decode/decode_failure.h"

namespace shardwise::detail {
namespace {

constexpr int kMaxStoredChannels = 64;
/// Number of seconds to decode before the first requested sample, so that the codec's state is
/// right. This exceeds two blocks of Vorbis, two frames of AAC, and the 80 ms of Opus.
constexpr double kWarmUp = 0.5;
/// A difference between expected and actual time is a gap if it exceeds this many seconds;
/// otherwise the time is inexact. This is less than a packet of the usual codecs.
constexpr double kGap = 0.008;
/// Number of frames before and after a difference that show whether it lasts, or whether the clock
/// jitters.
constexpr std::size_t kFramesBeside = 16;
/// Sample times within this many seconds of a bound count as equal to it, because times in seconds
/// are rounded.
constexpr double kNear = 1e-6;

int channels_of(const AVFrame& frame) noexcept {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(57, 28, 100)
  return frame.ch_layout.nb_channels;
#else
  return frame.channels;
#endif
}

/// Appends samples [begin, end) of one channel of a frame whose samples have type T.
template <class T, class Convert>
void append_as(const AVFrame& frame, int channel, int begin, int end, std::vector<float>& to,
               Convert&& convert) {
  const bool is_planar = av_sample_fmt_is_planar(static_cast<AVSampleFormat>(frame.format)) != 0;
  const std::ptrdiff_t step = is_planar ? 1 : channels_of(frame);
  const auto* from = reinterpret_cast<const T*>(frame.extended_data[is_planar ? channel : 0]) +
                     (is_planar ? 0 : channel);
  for (int i = begin; i < end; ++i) to.push_back(convert(from[i * step]));
}

void append(const AVFrame& frame, int channel, int begin, int end, std::vector<float>& to) {
  switch (av_get_packed_sample_fmt(static_cast<AVSampleFormat>(frame.format))) {
    case AV_SAMPLE_FMT_U8:
      append_as<std::uint8_t>(frame, channel, begin, end, to, [](std::uint8_t value) {
        return static_cast<float>(value - 128) / 128.0F;
      });
      return;
    case AV_SAMPLE_FMT_S16:
      append_as<std::int16_t>(frame, channel, begin, end, to, [](std::int16_t value) {
        return static_cast<float>(value) / 32768.0F;
      });
      return;
    case AV_SAMPLE_FMT_S32:
      append_as<std::int32_t>(frame, channel, begin, end, to, [](std::int32_t value) {
        return static_cast<float>(static_cast<double>(value) / 2147483648.0);
      });
      return;
    case AV_SAMPLE_FMT_S64:
      append_as<std::int64_t>(frame, channel, begin, end, to, [](std::int64_t value) {
        return static_cast<float>(static_cast<double>(value) / 9223372036854775808.0);
      });
      return;
    case AV_SAMPLE_FMT_FLT:
      append_as<float>(frame, channel, begin, end, to, [](float value) { return value; });
      return;
    case AV_SAMPLE_FMT_DBL:
      append_as<double>(frame, channel, begin, end, to,
                        [](double value) { return static_cast<float>(value); });
      return;
    default:
      throw DecodeFailure("the sample format is unknown");
  }
}

/// Creates a mixer and resampler for planar float samples. `like` has the stored channel layout.
LibavPtr<SwrContext> make_resampler(const AVFrame& like, int sample_rate, int to_channels,
                                    int to_rate) {
  const int channels = channels_of(like);
  SwrContext* made = nullptr;
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(57, 28, 100)
  AVChannelLayout from = {};
  AVChannelLayout to = {};
  if (like.ch_layout.order == AV_CHANNEL_ORDER_UNSPEC) {
    av_channel_layout_default(&from, channels);
  } else if (av_channel_layout_copy(&from, &like.ch_layout) < 0) {
    throw std::bad_alloc();
  }
  if (to_channels == channels) {
    av_channel_layout_copy(&to, &from);
  } else {
    av_channel_layout_default(&to, to_channels);
  }
  swr_alloc_set_opts2(&made, &to, AV_SAMPLE_FMT_FLTP, to_rate, &from, AV_SAMPLE_FMT_FLTP,
                      sample_rate, 0, nullptr);
  av_channel_layout_uninit(&from);
  av_channel_layout_uninit(&to);
#else
  const std::int64_t from = like.channel_layout != 0
                                ? static_cast<std::int64_t>(like.channel_layout)
                                : av_get_default_channel_layout(channels);
  const std::int64_t to =
      to_channels == channels ? from : av_get_default_channel_layout(to_channels);
  made = swr_alloc_set_opts(nullptr, to, AV_SAMPLE_FMT_FLTP, to_rate, from, AV_SAMPLE_FMT_FLTP,
                            sample_rate, 0, nullptr);
#endif
  LibavPtr<SwrContext> resampler(made);
  // Limit mixing to full volume, as for integer samples: e.g. mono is the mean of two channels.
  av_opt_set_double(resampler.get(), "rematrix_maxval", 1.0, 0);
  const int result = resampler ? swr_init(resampler.get()) : AVERROR(EINVAL);
  if (result < 0) throw_libav_failure("the samples cannot be mixed or resampled", result);
  return resampler;
}

/// Calls libswresample once with samples [begin, end) of `from`, and appends the output to `to`.
/// Returns the number of samples appended. An empty range flushes the remaining output.
int resample(SwrContext& resampler, const std::vector<std::vector<float>>& from, std::size_t begin,
             std::size_t end, std::vector<std::vector<float>>& to) {
  const auto count = static_cast<int>(end - begin);
  const int most = swr_get_out_samples(&resampler, count);
  if (most <= 0) return 0;
  std::vector<const std::uint8_t*> in;
  in.reserve(from.size());
  for (const auto& channel : from) {
    in.push_back(reinterpret_cast<const std::uint8_t*>(channel.data() + begin));
  }
  const std::size_t before = to.front().size();
  std::vector<std::uint8_t*> out;
  out.reserve(to.size());
  for (auto& channel : to) {
    channel.resize(before + static_cast<std::size_t>(most));
    out.push_back(reinterpret_cast<std::uint8_t*>(channel.data() + before));
  }
  const int made =
      swr_convert(&resampler, out.data(), most, count > 0 ? in.data() : nullptr, count);
  if (made < 0) throw_libav_failure("the samples cannot be resampled", made);
  for (auto& channel : to) channel.resize(before + static_cast<std::size_t>(made));
  return made;
}

void require_few(double num_samples, int channels, std::uint64_t most) {
  if (num_samples * channels <= static_cast<double>(most)) return;
  throw DecodeFailure("the sound has more samples than the limit of " + human_count(most));
}

/// Returns the number of the first sample at or after this time.
std::int64_t sample_at(double seconds, int sample_rate) noexcept {
  constexpr double kMax = 1e15;  // exact as a double, and small enough to avoid overflow
  const double number = std::ceil(seconds * sample_rate - kNear);
  return static_cast<std::int64_t>(std::clamp(number, -kMax, kMax));
}

}  // namespace

AudioDecoder::AudioDecoder(MediaView bytes, const Format& format)
    : demuxer_(bytes), format_(format), packet_(make_packet()), frame_(make_frame()) {
  const LibavMessages messages;
  choose_stream();
  demuxer_.select(stream_);
  codec_ = open_decoder(demuxer_.stream(stream_), 0);
  // Decode a frame to learn rate and channels. Containers may lack them (MP3) or state wrong ones
  // (AAC with SBR).
  if (!receive()) throw DecodeFailure("the sound track has no samples");
  has_frame_ = true;
  like_.reset(av_frame_clone(frame_.get()));
  if (!like_) throw std::bad_alloc();
  sample_rate_ = frame_->sample_rate;
  channels_ = channels_of(*frame_);
  if (sample_rate_ <= 0) throw DecodeFailure("the sound track has no sample rate");
  if (channels_ <= 0 || channels_ > kMaxStoredChannels) {
    throw DecodeFailure(std::to_string(channels_) + " channels are not supported");
  }
  first_sample_ = number_of_first();
}

void AudioDecoder::choose_stream() {
  std::optional<unsigned> best;
  const auto is_default = [this](unsigned i) {
    return (demuxer_.stream(i).disposition & AV_DISPOSITION_DEFAULT) != 0;
  };
  for (unsigned i = 0; i < demuxer_.num_streams(); ++i) {
    if (demuxer_.stream(i).codecpar->codec_type != AVMEDIA_TYPE_AUDIO) continue;
    if (!best || (is_default(i) && !is_default(*best))) best = i;
  }
  if (!best) throw DecodeFailure("the file has no sound track");
  stream_ = *best;
  const AVRational base = demuxer_.stream(stream_).time_base;
  if (base.num <= 0 || base.den <= 0) throw DecodeFailure("the time stamps have no unit");
}

double AudioDecoder::duration() noexcept {
  const AVStream& stream = demuxer_.stream(stream_);
  if (stream.duration != AV_NOPTS_VALUE && stream.duration > 0) {
    return static_cast<double>(stream.duration) * stream.time_base.num / stream.time_base.den;
  }
  const std::int64_t whole = demuxer_.format().duration;
  return whole != AV_NOPTS_VALUE && whole > 0 ? static_cast<double>(whole) / AV_TIME_BASE : 0;
}

std::string_view AudioDecoder::codec() const noexcept { return avcodec_get_name(codec_->codec_id); }

// -------------------------------------------------------------------------------------- decoding

bool AudioDecoder::receive() {
  if (ahead_.empty()) return decode();
  frame_ = std::move(ahead_.front());
  ahead_.pop_front();
  return true;
}

bool AudioDecoder::decode() {
  for (;;) {
    const int result = avcodec_receive_frame(codec_.get(), frame_.get());
    if (result == 0) {
      if (frame_->nb_samples > 0) return true;
      continue;
    }
    if (result == AVERROR_EOF) return false;
    if (result != AVERROR(EAGAIN)) throw_libav_failure("the samples are damaged", result);
    if (!send()) return false;
  }
}

/// Reads the next packet. Returns false at the end. Ignores zeros at the end of an MP3, because
/// some programs pad files with them.
bool AudioDecoder::next_packet() {
  const bool may_be_padded = demuxer_.container() == Container::kMp3;
  bool is_padded = false;
  while (demuxer_.next(*packet_)) {
    const std::span data(packet_->data, static_cast<std::size_t>(packet_->size));
    if (!may_be_padded || std::ranges::any_of(data, [](auto byte) { return byte != 0; })) {
      if (!is_padded) return true;
      throw DecodeFailure("the samples are damaged (zeros between frames)");
    }
    is_padded = true;
    av_packet_unref(packet_.get());
  }
  return false;
}

bool AudioDecoder::send() {
  const bool is_packet = next_packet();
  const int result = avcodec_send_packet(codec_.get(), is_packet ? packet_.get() : nullptr);
  av_packet_unref(packet_.get());
  if (result == AVERROR_EOF) return false;
  if (result < 0) throw_libav_failure("the samples are damaged", result);
  return true;
}

void AudioDecoder::require_same_format() const {
  if (frame_->sample_rate == sample_rate_ && channels_of(*frame_) == channels_ &&
      frame_->format == like_->format) {
    return;
  }
  throw DecodeFailure("the sample rate or the channels change within the stream");
}

/// Returns the number of the frame's first sample, according to the frame's time; nullopt without a
/// time.
std::optional<std::int64_t> AudioDecoder::number_of(const AVFrame& frame) const {
  const std::int64_t pts = frame.pts != AV_NOPTS_VALUE ? frame.pts : frame.best_effort_timestamp;
  if (pts == AV_NOPTS_VALUE) return std::nullopt;
  const std::int64_t number = av_rescale_q(pts, demuxer_base(), AVRational{1, sample_rate_});
  constexpr std::int64_t kMax = std::int64_t{1} << 60;
  if (number < -kMax || number > kMax) throw DecodeFailure("the time stamps are damaged");
  return number;
}

/// Compares the time of frame_ with `expected`, the sample number that follows from earlier
/// samples.
/// Errors: DecodeFailure if more samples were decoded than fit the times.
AudioDecoder::Step AudioDecoder::step_before_frame(std::int64_t expected) {
  const Container container = demuxer_.container();
  // These containers have no times.
  if (container == Container::kWav || container == Container::kMp3) return {};
  const auto number = number_of(*frame_);
  if (!number) return {};
  const std::int64_t offset = *number + chain_begin_ - expected;
  const double tolerance = kGap * sample_rate_;
  Step step;
  if (std::abs(static_cast<double>(offset)) > tolerance) {
    if (container == Container::kMp4 || container == Container::kMatroska) {
      step = judge(offset, expected);
    } else if (offset < 0) {
      chain_begin_ = expected - *number;  // a concatenated stream, whose times start again
      return {};
    } else if (container == Container::kFlac) {
      throw DecodeFailure("samples are missing within the stream");
    } else {
      step.zeros = offset;
    }
  }
  for (std::int64_t& earlier : offsets_) earlier -= step.drift;
  offsets_.push_back(offset - step.zeros - step.drift);
  if (offsets_.size() > kFramesBeside) offsets_.pop_front();
  return step;
}

/// Called if the time of frame_ differs by `offset`. Decides whether there is a gap before the
/// frame, or whether the clock drifts or jitters.
/// Errors: DecodeFailure if more samples were decoded than fit the times.
AudioDecoder::Step AudioDecoder::judge(std::int64_t offset, std::int64_t expected) {
  while (ahead_.size() < kFramesBeside) {
    LibavPtr<AVFrame> current = std::move(frame_);
    frame_ = make_frame();
    const bool is_frame = decode();
    if (is_frame) ahead_.push_back(std::move(frame_));
    frame_ = std::move(current);
    if (!is_frame) break;
  }
  std::int64_t least = offset;
  std::int64_t most = offset;
  std::int64_t place = expected + frame_->nb_samples;
  for (const auto& frame : ahead_) {
    const std::int64_t later = number_of(*frame).value_or(place) - place;
    least = std::min(least, later);
    most = std::max(most, later);
    place += frame->nb_samples;
  }
  const auto [least_before, most_before] =
      offsets_.empty()
          ? std::pair<std::int64_t, std::int64_t>()
          : std::pair(*std::ranges::min_element(offsets_), *std::ranges::max_element(offsets_));
  const auto tolerance = static_cast<std::int64_t>(kGap * sample_rate_);
  if (least - most_before > tolerance) {
    return {.zeros = offset - least > tolerance ? least : offset};
  }
  // The first frame itself may have been late.
  const bool may_be_late = offsets_.empty() && -most <= frame_->nb_samples;
  if (least_before - most > tolerance && !may_be_late)
    throw DecodeFailure("the time stamps go backwards");
  if (least > tolerance) return {.drift = least};
  if (most < -tolerance) return {.drift = most};
  return {};
}

AVRational AudioDecoder::demuxer_base() const noexcept { return codec_->pkt_timebase; }

/// Opens a new decoder. Flushing the old one would not suffice: some codecs keep state that would
/// be audible, e.g. the random numbers of AAC.
void AudioDecoder::restart_decoder() {
  codec_ = open_decoder(demuxer_.stream(stream_), 0);
  has_frame_ = false;
  ahead_.clear();
  offsets_.clear();
}

void AudioDecoder::go_to_start() {
  demuxer_.rewind();
  restart_decoder();
}

/// Decodes the first frame of the stream into frame_. Returns the number of its first sample.
std::optional<std::int64_t> AudioDecoder::first_frame() {
  chain_begin_ = 0;
  if (!has_frame_) {
    go_to_start();
    if (!receive()) return std::nullopt;
  }
  has_frame_ = false;
  return number_of_first();
}

/// Returns the number of the first sample in the stream. REQUIRES: frame_ is the first frame.
std::int64_t AudioDecoder::number_of_first() const {
  // MP3 has no times. Sample 0 is the first one after the padding, as in players.
  if (demuxer_.container() == Container::kMp3) return 0;
  return number_of(*frame_).value_or(0);
}

/// True if seeking finds a packet whose position in time is known.
bool AudioDecoder::can_seek() {
  AVCodecParameters& parameters = *demuxer_.stream(stream_).codecpar;
  switch (demuxer_.container()) {
    case Container::kMp3:
    case Container::kOgg:
      return false;  // a position is known only from all earlier packets
    case Container::kFlac:
      return !demuxer_.may_be_joined();
    case Container::kWav: {
      // libav seeks by the header's byte rate, which many programs round or guess. Without a byte
      // rate, libav uses the sample size, which is known for PCM.
      const int bits = av_get_bits_per_sample(parameters.codec_id);
      const bool is_pcm = parameters.codec_id < AV_CODEC_ID_ADPCM_IMA_QT && bits % 8 == 0;
      parameters.bit_rate = 0;
      return is_pcm && bits > 0 && parameters.block_align == channels_ * bits / 8;
    }
    default:
      return true;
  }
}

/// Seeks to a frame before sample `begin` and decodes it into frame_. Returns the number of its
/// first sample; nullopt if that fails.
std::optional<std::int64_t> AudioDecoder::frame_before(std::int64_t begin) {
  const auto warm_up = static_cast<std::int64_t>(kWarmUp * sample_rate_);
  if (begin < 2 * warm_up || !can_seek()) return std::nullopt;
  restart_decoder();
  const std::int64_t target = begin - warm_up;
  if (!demuxer_.seek(av_rescale_q(target, AVRational{1, sample_rate_}, demuxer_base()))) {
    return std::nullopt;
  }
  while (receive()) {
    const auto number = number_of(*frame_);
    if (number && *number > begin - warm_up / 2) return std::nullopt;
    if (number) return number;
  }
  return std::nullopt;
}

/// Collects the samples in [begin, end) from samples that are passed in order.
class AudioDecoder::Taken {
 public:
  Taken(const AudioDecoder& decoder, std::int64_t begin, std::int64_t end)
      : decoder_(decoder),
        begin_(begin),
        end_(end),
        values_(static_cast<std::size_t>(decoder.channels_)) {}

  /// Receives `size` samples that begin at `number`, and keeps those in [begin, end). Calls
  /// `append` once per channel, with the range to keep and the values collected so far.
  template <class Append>
  void take(std::int64_t number, std::int64_t size, const Append& append) {
    const std::int64_t from = std::clamp<std::int64_t>(begin_ - number, 0, size);
    const std::int64_t to = std::clamp<std::int64_t>(end_ - number, from, size);
    if (values_.front().empty()) first_ = number + from;
    require_few(static_cast<double>(values_.front().size()) + static_cast<double>(to - from),
                decoder_.channels_, decoder_.format_.max_samples);
    for (std::size_t c = 0; c < values_.size(); ++c)
      append(static_cast<int>(c), from, to, values_[c]);
  }
  void take_zeros(std::int64_t number, std::int64_t size) {
    take(number, size, [](int, std::int64_t from, std::int64_t to, std::vector<float>& values) {
      values.resize(values.size() + static_cast<std::size_t>(to - from));
    });
  }
  void take_frame(std::int64_t number) {
    const AVFrame& frame = *decoder_.frame_;
    take(number, frame.nb_samples,
         [&](int channel, std::int64_t from, std::int64_t to, std::vector<float>& values) {
           append(frame, channel, static_cast<int>(from), static_cast<int>(to), values);
         });
  }

  [[nodiscard]] bool is_begun() const noexcept { return !values_.front().empty(); }
  /// Returns the number of the first collected sample, or `begin` before any sample was collected.
  [[nodiscard]] std::int64_t first() const noexcept {
    return values_.front().empty() ? begin_ : first_;
  }
  [[nodiscard]] std::vector<std::vector<float>>& values() noexcept { return values_; }

 private:
  const AudioDecoder& decoder_;
  const std::int64_t begin_;
  const std::int64_t end_;
  std::int64_t first_ = 0;
  std::vector<std::vector<float>> values_;  ///< one vector per channel
};

/// Decodes from frame_, whose first sample is `number`, up to sample `end`. Returns the number of
/// decoded samples if the sound has ended. Returns nullopt if more samples follow, or at a gap
/// within the first `warm_up` samples (see is_cold_). The returned samples are contiguous even if
/// the clock drifts.
std::optional<std::int64_t> AudioDecoder::decode_until(std::int64_t end, std::int64_t& number,
                                                       Taken* taken, std::int64_t warm_up) {
  is_cold_ = false;
  std::int64_t num_decoded = 0;
  std::int64_t drift = 0;  // clock drift within the clip, in samples
  do {
    require_same_format();
    if (taken != nullptr) taken->take_frame(number);
    number += frame_->nb_samples;
    num_decoded += frame_->nb_samples;
    if (number >= end) return std::nullopt;
    if (!receive()) return num_decoded;
    const Step step = step_before_frame(number + drift);
    is_cold_ = step.zeros > 0 && num_decoded < warm_up;
    if (is_cold_) return std::nullopt;
    if (taken != nullptr) taken->take_zeros(number, step.zeros);
    const bool is_begun = taken != nullptr && taken->is_begun();
    (is_begun ? drift : number) += step.drift;
    number += step.zeros;
  } while (number < end);
  return std::nullopt;
}

AudioDecoder::Samples AudioDecoder::read(double begin, double end) {
  const LibavMessages messages;
  const std::int64_t end_number = sample_at(end, sample_rate_);
  const std::int64_t begin_number = sample_at(begin, sample_rate_);
  if (auto number = frame_before(begin_number)) {
    Taken taken(*this, begin_number, end_number);
    const auto warm_up = static_cast<std::int64_t>(kWarmUp / 2 * sample_rate_);
    is_cold_ = false;
    if (*number < end_number) decode_until(end_number, *number, &taken, warm_up);
    if (!is_cold_) return converted_from(taken);
  }
  Taken taken(*this, begin_number, end_number);
  auto number = first_frame();
  std::optional<std::int64_t> num_decoded = number ? std::nullopt : std::optional<std::int64_t>(0);
  if (number && *number < end_number) num_decoded = decode_until(end_number, *number, &taken);
  if (num_decoded) require_whole(*num_decoded);
  return converted_from(taken);
}

AudioDecoder::Samples AudioDecoder::converted_from(Taken& taken) const {
  // Read first(), because the next line moves the values.
  const double first = static_cast<double>(taken.first()) / sample_rate_;
  return converted(std::move(taken.values()), first);
}

std::int64_t AudioDecoder::count() {
  const LibavMessages messages;
  const auto first = first_frame();
  std::int64_t number = first.value_or(0);
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  require_whole(first ? decode_until(kEnd, number, nullptr).value_or(0) : 0);
  return number - first.value_or(0);
}

void AudioDecoder::require_whole(std::int64_t num_decoded) {
  const AVStream& stream = demuxer_.stream(stream_);
  // FLAC states its number of samples, and no other code checks it.
  if (demuxer_.container() != Container::kFlac || stream.duration == AV_NOPTS_VALUE) return;
  if (num_decoded < av_rescale_q(stream.duration, stream.time_base, {1, sample_rate_})) {
    throw DecodeFailure("the data ends early");
  }
}

AudioDecoder::Samples AudioDecoder::converted(std::vector<std::vector<float>> taken,
                                              double begin) const {
  Samples samples;
  samples.begin = begin;
  samples.channels = format_.channels > 0 ? format_.channels : channels_;
  samples.sample_rate = format_.sample_rate > 0 ? format_.sample_rate : sample_rate_;
  const std::size_t size = taken.front().size();
  samples.num_stored = static_cast<std::int64_t>(size);
  if (size > 0 && (samples.channels != channels_ || samples.sample_rate != sample_rate_)) {
    const double ratio = static_cast<double>(samples.sample_rate) / sample_rate_;
    require_few(static_cast<double>(size) * ratio, samples.channels, format_.max_samples);
    const auto resampler =
        make_resampler(*like_, sample_rate_, samples.channels, samples.sample_rate);
    std::vector<std::vector<float>> made(static_cast<std::size_t>(samples.channels));
    constexpr std::size_t kPiece = 1 << 16;
    for (std::size_t at = 0; at < size; at += kPiece) {
      resample(*resampler, taken, at, std::min(at + kPiece, size), made);
    }
    while (resample(*resampler, taken, size, size, made) > 0) {
    }
    taken = std::move(made);
  }
  samples.num_samples = static_cast<std::int64_t>(taken.front().size());
  samples.values.reserve(taken.size() * taken.front().size());
  for (const auto& channel : taken) {
    samples.values.insert(samples.values.end(), channel.begin(), channel.end());
  }
  return samples;
}

}  // namespace shardwise::detail
