#include "shardwise/decode/audio_reader.h"

#include <limits>
#include <utility>

#include "decode/video/audio_decoder.h"
#include "decode/video/failure.h"

namespace shardwise {

void detail::require_audio_format(int sample_rate, int channels) {
  constexpr int kMaxRate = 1'000'000;
  constexpr int kMaxChannels = 64;
  if (sample_rate < 0 || sample_rate > kMaxRate) {
    throw InvalidArgument("the sample rate is out of range", std::to_string(sample_rate),
                          "choose 1 to 1,000,000 Hz, or 0 for the stored rate");
  }
  if (channels < 0 || channels > kMaxChannels) {
    throw InvalidArgument("the number of channels is out of range", std::to_string(channels),
                          "choose 1 to 64, or 0 for the stored number");
  }
}

struct AudioReader::Impl {
  Impl(std::string_view bytes, const Options& options)
      : where(options.where),
        decoder(bytes, {options.sample_rate, options.channels, options.max_samples}) {
    info.sample_rate = decoder.sample_rate();
    info.channels = decoder.channels();
    info.duration_seconds = decoder.duration();
    info.codec = decoder.codec();
  }

  const std::string where;
  detail::AudioDecoder decoder;
  Info info;
};

AudioReader::AudioReader(std::string_view bytes) : AudioReader(bytes, Options{}) {}

AudioReader::AudioReader(std::string_view bytes, Options options) {
  detail::require_audio_format(options.sample_rate, options.channels);
  impl_ = detail::with_place("the sound cannot be read", options.where,
                             [&] { return std::make_unique<Impl>(bytes, options); });
}

AudioReader::~AudioReader() = default;
AudioReader::AudioReader(AudioReader&&) noexcept = default;
AudioReader& AudioReader::operator=(AudioReader&&) noexcept = default;

const AudioReader::Info& AudioReader::info() const noexcept { return impl_->info; }

AudioReader::Clip AudioReader::read() {
  constexpr double kEnd = std::numeric_limits<double>::infinity();
  return read(-kEnd, kEnd);
}

AudioReader::Clip AudioReader::read(double begin_seconds, double end_seconds) {
  if (!(begin_seconds <= end_seconds)) {
    throw InvalidArgument(
        "the range ends before it begins",
        std::to_string(begin_seconds) + " to " + std::to_string(end_seconds) + " s",
        "give the smaller time first");
  }
  auto samples = detail::with_place("the sound cannot be decoded", impl_->where, [&] {
    return impl_->decoder.read(begin_seconds, end_seconds);
  });
  return {std::move(samples.values), samples.channels, samples.num_samples, samples.sample_rate,
          samples.begin};
}

}  // namespace shardwise
