#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// Checks the requested audio format; 0 means the stored rate or number of channels.
/// Errors: InvalidArgument for an impossible rate or number of channels.
void require_audio_format(int sample_rate, int channels);

/// Implements AudioReader. The texts of its DecodeFailures do not say where the bytes come from.
/// Threads: one at a time.
class AudioDecoder {
 public:
  struct Format {
    int sample_rate = 0;  ///< 0 means the stored rate
    int channels = 0;     ///< 0 means the stored number
    std::uint64_t max_samples = 0;
  };
  struct Samples {
    std::vector<float> values;  ///< shape [channels, num_samples]
    int channels = 0;
    std::int64_t num_samples = 0;
    std::int64_t num_stored = 0;  ///< number of samples before resampling
    int sample_rate = 0;
    double begin = 0;  ///< time of the first sample in seconds
  };

  /// Lifetime: `bytes` must outlive the decoder.
  /// Errors: DecodeFailure; those of reading the bytes, like all calls that read.
  AudioDecoder(MediaView bytes, const Format& format);

  int sample_rate() const noexcept { return sample_rate_; }
  int channels() const noexcept { return channels_; }
  double duration() noexcept;
  std::string_view codec() const noexcept;
  /// Returns the number of the first sample: its time multiplied by the sample rate.
  std::int64_t first_sample() const noexcept { return first_sample_; }
  /// Returns the sound's length in samples, according to its times. It differs from the number of
  /// decoded samples only if there are gaps or the clock drifts.
  /// Cost: decodes all of the sound.
  /// Errors: DecodeFailure.
  std::int64_t count();

  /// Returns the samples whose times are in [begin, end), in seconds. Infinite bounds mean the
  /// start and the end of the sound.
  Samples read(double begin, double end);

 private:
  class Taken;
  /// The difference between a frame's time and the end of the previous samples.
  struct Step {
    std::int64_t zeros = 0;  ///< number of missing samples, which are replaced by zeros
    std::int64_t drift = 0;  ///< number of samples by which the clock has drifted
  };

  void choose_stream();
  /// Decodes the next frame into frame_. Returns false at the end.
  bool receive();
  bool decode();
  bool next_packet();
  /// Sends the next packet to the decoder, or the end of the stream after the last packet. Returns
  /// false if the end was already sent.
  bool send();
  void require_same_format() const;
  std::optional<std::int64_t> number_of(const AVFrame& frame) const;
  Step step_before_frame(std::int64_t expected);
  Step judge(std::int64_t offset, std::int64_t expected);
  bool can_seek();
  AVRational demuxer_base() const noexcept;
  void restart_decoder();
  void go_to_start();
  std::optional<std::int64_t> first_frame();
  std::int64_t number_of_first() const;
  std::optional<std::int64_t> frame_before(std::int64_t begin);
  std::optional<std::int64_t> decode_until(std::int64_t end, std::int64_t& number, Taken* taken,
                                           std::int64_t warm_up = 0);
  void require_whole(std::int64_t num_decoded);
  Samples converted_from(Taken& taken) const;
  Samples converted(std::vector<std::vector<float>> taken, double begin) const;

  Demuxer demuxer_;
  const Format format_;
  unsigned stream_ = 0;
  LibavPtr<AVCodecContext> codec_;
  LibavPtr<AVPacket> packet_;
  LibavPtr<AVFrame> frame_;
  std::deque<LibavPtr<AVFrame>> ahead_;  ///< frames after frame_ that have already been decoded
  std::deque<std::int64_t> offsets_;     ///< for the last frames: time minus position, in samples
  LibavPtr<AVFrame> like_;               ///< first frame; all other frames must have its format
  int sample_rate_ = 0;
  int channels_ = 0;
  std::int64_t first_sample_ = 0;
  /// Ogg: offset that is added to the sample numbers of a concatenated stream.
  std::int64_t chain_begin_ = 0;
  /// There was a gap before the codec was warm, so the samples may be wrong.
  bool is_cold_ = false;
  /// frame_ is the first frame of the stream, and no other frame has been decoded since.
  bool has_frame_ = false;
};

}  // namespace shardwise::detail
