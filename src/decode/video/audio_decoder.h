#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// Errors: InvalidArgument: a rate or a number of channels that cannot be; 0 stands for the stored
/// one.
void require_audio_format(int sample_rate, int channels);

/// What AudioReader does, with DecodeFailures without a place. Not for several threads at once.
class AudioDecoder {
 public:
  struct Format {
    int sample_rate = 0;  ///< 0: as stored
    int channels = 0;     ///< 0: as stored
    std::uint64_t max_samples = 0;
  };
  struct Samples {
    std::vector<float> values;  ///< [channels, num_samples]
    int channels = 0;
    std::int64_t num_samples = 0;
    std::int64_t num_stored = 0;  ///< before they were resampled
    int sample_rate = 0;
    double begin = 0;  ///< seconds
  };

  /// `bytes` must outlive it. Errors: DecodeFailure.
  AudioDecoder(std::string_view bytes, const Format& format);

  int sample_rate() const noexcept { return sample_rate_; }
  int channels() const noexcept { return channels_; }
  double duration() noexcept;
  std::string_view codec() const noexcept;
  /// The number of the first sample: its time, in samples.
  std::int64_t first_sample() const noexcept { return first_sample_; }
  /// How many samples fit in its time: as many as it has, but for a clock that drifts. Cost:
  /// decodes them all. Errors: DecodeFailure.
  std::int64_t count();

  /// The samples with times in [begin, end), in seconds; infinite ends are the sound's.
  Samples read(double begin, double end);

 private:
  class Taken;
  /// What the time of a frame says, beside that of the samples before it.
  struct Step {
    std::int64_t zeros = 0;  ///< samples that are missing
    std::int64_t drift = 0;  ///< by which its clock went off until now
  };

  void choose_stream();
  /// Decodes the next frame into frame_; false at the end.
  bool receive();
  bool decode();
  bool next_packet();
  /// Gives the decoder the next packet, and once the end; false: it had that already.
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
  std::deque<LibavPtr<AVFrame>> ahead_;  ///< decoded already: what comes behind frame_
  std::deque<std::int64_t> offsets_;     ///< of the last frames' times from their places
  LibavPtr<AVFrame> like_;               ///< the first frame, whose format all others must have
  int sample_rate_ = 0;
  int channels_ = 0;
  std::int64_t first_sample_ = 0;
  std::int64_t chain_begin_ = 0;  ///< Ogg: what is added to the numbers of a later stream
  bool is_cold_ = false;          ///< a codec had too little before a gap to be like in the whole
  bool has_frame_ = false;        ///< frame_ is the first one, and nothing was read since
};

}  // namespace shardwise::detail
