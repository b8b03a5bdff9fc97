#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// Checks an audio format; 0 means the stored rate or number of channels.
/// Errors: InvalidArgument for an impossible rate or number of channels.
void require_audio_format(int sample_rate, int channels);

/// Implements AudioReader. Its DecodeFailures do not say where.
/// Threads: one at a time.
class AudioDecoder {
 public:
  struct Format {
    int sample_rate = 0;  ///< 0 means as stored
    int channels = 0;     ///< 0 means as stored
    std::uint64_t max_samples = 0;
  };
  struct Samples {
    std::vector<float> values;  ///< [channels, num_samples]
    int channels = 0;
    std::int64_t num_samples = 0;
    std::int64_t num_stored = 0;  ///< before resampling
    int sample_rate = 0;
    double begin = 0;  ///< time of the first sample, in seconds
  };

  /// Lifetime: `bytes` must outlive the decoder.
  /// Errors: DecodeFailure.
  AudioDecoder(std::string_view bytes, const Format& format);

  int sample_rate() const noexcept { return sample_rate_; }
  int channels() const noexcept { return channels_; }
  double duration() noexcept;
  std::string_view codec() const noexcept;
  /// Returns the number of the first sample, which is its time in samples.
  std::int64_t first_sample() const noexcept { return first_sample_; }
  /// Returns the sound's length in samples, by its times. It differs from the number of decoded
  /// samples only if there are gaps, or the clock drifts.
  /// Cost: decodes everything.
  /// Errors: DecodeFailure.
  std::int64_t count();

  /// Returns the samples with times in [begin, end), in seconds. Infinite bounds mean the sound's
  /// ends.
  Samples read(double begin, double end);

 private:
  class Taken;
  /// How a frame's time differs from the end of the samples before it.
  struct Step {
    std::int64_t zeros = 0;  ///< missing samples, to fill with zeros
    std::int64_t drift = 0;  ///< samples by which its clock has drifted
  };

  void choose_stream();
  /// Moves to the next frame, in frame_. Returns false at the end.
  bool receive();
  bool decode();
  bool next_packet();
  /// Sends the decoder the next packet, and finally the end. Returns false if it had the end
  /// already.
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
  std::deque<LibavPtr<AVFrame>> ahead_;  ///< frames after frame_ that were decoded already
  std::deque<std::int64_t> offsets_;     ///< the last frames' times less their positions
  LibavPtr<AVFrame> like_;               ///< the first frame; all others must have its format
  int sample_rate_ = 0;
  int channels_ = 0;
  std::int64_t first_sample_ = 0;
  std::int64_t chain_begin_ = 0;  ///< Ogg: offset added to the numbers of a later stream
  bool is_cold_ = false;          ///< a gap came before the codec was warm: the samples are unsure
  bool has_frame_ = false;        ///< frame_ is the first one, and no other was read since
};

}  // namespace shardwise::detail
