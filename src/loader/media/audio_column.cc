#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "decode/decode_failure.h"
#include "decode/video/audio_decoder.h"
#include "loader/agreed_options.h"
#include "loader/bad_field.h"
#include "loader/column_maker.h"
#include "loader/media/clip.h"
#include "loader/media/media_field.h"
#include "shardwise/loader/media_columns.h"

namespace shardwise::columns {
namespace {

using detail::AudioDecoder;
using detail::ColumnMaker;
using detail::FieldChoice;
using detail::RowInput;
using detail::RowOutput;
using detail::Stage;

/// Cuts clips out of one sound. Times are numbers of stored samples.
class AudioCutter {
 public:
  AudioCutter(AudioDecoder& decoder, const Column::AudioClip& clip, const Hash128& key)
      : decoder_(decoder), clip_(clip), key_(key) {}

  /// Errors: DecodeFailure.
  AudioDecoder::Samples cut() {
    AudioDecoder::Samples samples = clip_.seconds > 0 ? cut_seconds() : read_range();
    if (samples.num_samples > 0) return samples;
    throw detail::DecodeFailure("no audio sample lies in [" + std::to_string(clip_.begin_seconds) +
                                ", " + std::to_string(clip_.end_seconds) + ") s");
  }

 private:
  AudioDecoder::Samples read_range() {
    return decoder_.read(clip_.begin_seconds, clip_.end_seconds);
  }

  AudioDecoder::Samples cut_seconds() {
    if (clip_.start == Column::ClipStart::kFirst) return cut_of(kUnknown);
    const auto promised = static_cast<std::int64_t>(
        std::min(std::round(decoder_.duration() * decoder_.sample_rate()), kFar));
    if (promised > 0) {
      AudioDecoder::Samples samples = cut_of(promised);
      if (samples.num_stored == wanted_) return samples;
    }
    return cut_of(decoder_.count());  // the length in the container is missing or wrong: decode to
                                      // count
  }

  /// Cuts the clip.
  /// @param size  number of samples of the sound.
  AudioDecoder::Samples cut_of(std::int64_t size) {
    const std::int64_t first = std::max(decoder_.first_sample(), number_at(clip_.begin_seconds));
    const std::int64_t last =
        std::min(decoder_.first_sample() + size, number_at(clip_.end_seconds));
    const std::int64_t room = std::max<std::int64_t>(last - first, 0);
    const std::int64_t span =
        std::max<std::int64_t>(std::llround(clip_.seconds * decoder_.sample_rate()), 1);
    const std::int64_t begin =
        first + detail::clip_start(room, span, clip_.start, key_, detail::Operation::kAudioClip);
    wanted_ = std::min(span, room);
    return decoder_.read(seconds_at(begin), seconds_at(begin + wanted_));
  }

  /// Number of the first sample at or after this time, by the rule of AudioReader.
  [[nodiscard]] std::int64_t number_at(double seconds) const noexcept {
    const double number = std::ceil(seconds * decoder_.sample_rate() - 1e-6);
    return static_cast<std::int64_t>(std::clamp(number, -kFar, kFar));
  }
  [[nodiscard]] double seconds_at(std::int64_t number) const noexcept {
    return static_cast<double>(number) / decoder_.sample_rate();
  }

  static constexpr double kFar = 1e15;
  static constexpr std::int64_t kUnknown = std::int64_t{1} << 60;

  AudioDecoder& decoder_;
  const Column::AudioClip& clip_;
  const Hash128 key_;
  std::int64_t wanted_ = 0;  // number of samples of the last clip
};

class AudioColumn final : public ColumnMaker {
 public:
  AudioColumn(FieldChoice fields, const Column::AudioClip& clip)
      : ColumnMaker(DType::kFloat32, clip.fixed_length ? Layout::kFixed : Layout::kRagged),
        fields_(std::move(fields)),
        clip_(clip) {}

  [[nodiscard]] std::string describe() const override {
    return "audio " + fields_.describe() + " " + detail::text_of(clip_);
  }
  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] bool reads_whole_fields() const override { return false; }
  [[nodiscard]] const FieldChoice* fields() const override { return &fields_; }
  [[nodiscard]] std::vector<std::int64_t> row_shape() const override {
    return {clip_.channels, std::llround(clip_.seconds * clip_.sample_rate)};
  }
  void make(const RowInput& input, RowOutput& output) const override {
    const std::size_t place = fields_.in(input.sample);
    detail::MediaField field(input, place);
    input.enter(Stage::kDecoding);
    try {
      AudioDecoder decoder(field.view(), {clip_.sample_rate, clip_.channels, clip_.max_samples});
      write(AudioCutter(decoder, clip_, input.random()).cut(), output);
    } catch (const detail::DecodeFailure& failure) {
      detail::throw_bad_field(input.sample, place, "a sound", failure.what());
    }
    input.enter(Stage::kReading);
  }

 private:
  /// Writes each channel. Pads it with zeros, or cuts it, to the row's length.
  static void write(const AudioDecoder::Samples& samples, RowOutput& output) {
    const auto size = static_cast<std::size_t>(samples.num_samples);
    if (output.ragged != nullptr) {
      const std::int64_t shape[] = {samples.channels, samples.num_samples};
      const auto to = output.ragged->resize(shape, sizeof(float));
      std::memcpy(to.data(), samples.values.data(), to.size());
      return;
    }
    const auto length = static_cast<std::size_t>(output.shape[1]);
    const std::size_t copied = std::min(size, length);
    std::byte* to = output.slot.data();
    for (std::size_t c = 0; c < static_cast<std::size_t>(samples.channels); ++c) {
      std::memcpy(to, samples.values.data() + c * size, copied * sizeof(float));
      std::memset(to + copied * sizeof(float), 0, (length - copied) * sizeof(float));
      to += length * sizeof(float);
    }
  }

  const FieldChoice fields_;
  const Column::AudioClip clip_;
};

}  // namespace

Column audio(const std::string& fields, const Column::AudioClip& clip) {
  FieldChoice choice = FieldChoice::readable(fields);
  detail::require_clip(clip);
  std::string name = choice.names().front();
  return {std::move(name), std::make_shared<AudioColumn>(std::move(choice), clip)};
}

}  // namespace shardwise::columns
