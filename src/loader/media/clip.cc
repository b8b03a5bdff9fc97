#include "loader/media/clip.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/counted.h"
#include "decode/decode_failure.h"
#include "decode/video/audio_decoder.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

constexpr std::int64_t kMaxFrames = 65'536;
constexpr std::int64_t kMaxEvery = std::int64_t{1} << 24;
constexpr double kMaxSeconds = 1e6;

void require(bool holds, const std::string& what, const std::string& remedy) {
  if (!holds) throw InvalidArgument("cannot make clips: " + what, {}, remedy);
}

std::string text_of(double begin, double end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ") s";
}

void require_range(double begin, double end) {
  require(begin < end, "the range of times is " + text_of(begin, end),
          "give a beginning, and an end after it");
}

}  // namespace

void require_clip(const Column::VideoClip& clip) {
  require(clip.frames >= 1 && clip.frames <= kMaxFrames, "frames is " + std::to_string(clip.frames),
          "choose 1 to 65,536");
  require(clip.every >= 0 && clip.every <= kMaxEvery, "every is " + std::to_string(clip.every),
          "choose 1 to 16,777,216, or 0 to spread the frames evenly");
  require(clip.every > 0 || clip.start == Column::ClipStart::kFirst,
          "start has no effect with every = 0, which spreads the frames over the whole range",
          "set every, or leave start out");
  require_range(clip.begin_seconds, clip.end_seconds);
}

void require_clip(const Column::AudioClip& clip) {
  require_audio_format(clip.sample_rate, clip.channels);
  require(clip.seconds >= 0 && clip.seconds <= kMaxSeconds,
          "seconds is " + std::to_string(clip.seconds), "choose up to 1,000,000, or 0 for all");
  require(clip.seconds > 0 || clip.start == Column::ClipStart::kFirst,
          "start has no effect without seconds, because the clip is then the whole range",
          "set seconds, or leave start out");
  require_range(clip.begin_seconds, clip.end_seconds);
  if (!clip.fixed_length) return;
  require(clip.seconds > 0 && clip.sample_rate > 0 && clip.channels > 0,
          "fixed_length needs seconds, sample_rate and channels", "set all three");
  const double size = std::round(clip.seconds * clip.sample_rate);
  require(size >= 1, "a clip has no sample", "choose more seconds, or a higher sample_rate");
  require(size * clip.channels <= static_cast<double>(clip.max_samples),
          "a clip has more samples than max_samples = " + std::to_string(clip.max_samples),
          "choose fewer seconds, or raise max_samples");
}

std::int64_t clip_start(std::int64_t size, std::int64_t span, Column::ClipStart start,
                        const Hash128& key, Operation operation) noexcept {
  if (span >= size) return 0;
  switch (start) {
    case Column::ClipStart::kFirst:
      break;
    case Column::ClipStart::kCentre:
      return (size - span) / 2;
    case Column::ClipStart::kRandom:
      return static_cast<std::int64_t>(
          SampleRandom(key, operation).below(static_cast<std::uint64_t>(size - span) + 1));
  }
  return 0;
}

std::vector<std::int64_t> clip_frames(std::span<const double> times, const Column::VideoClip& clip,
                                      const Hash128& key) {
  const auto first = std::lower_bound(times.begin(), times.end(), clip.begin_seconds);
  const auto last = std::lower_bound(first, times.end(), clip.end_seconds);
  const std::int64_t begin = first - times.begin();
  const std::int64_t size = last - first;
  if (size == 0) {
    throw DecodeFailure("no frame lies in " + text_of(clip.begin_seconds, clip.end_seconds));
  }
  const std::int64_t span = clip.every == 0 ? clip.frames : (clip.frames - 1) * clip.every + 1;
  if (clip.refuse_short && size < span) {
    throw DecodeFailure("the clip needs " + counted(static_cast<std::uint64_t>(span), "frame") +
                        ", but the range has " + std::to_string(size));
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(clip.frames));
  if (clip.every == 0) {
    const std::int64_t steps = std::max<std::int64_t>(clip.frames - 1, 1);
    for (std::int64_t i = 0; i < clip.frames; ++i) {
      numbers[static_cast<std::size_t>(i)] = begin + i * (size - 1) / steps;
    }
    return numbers;
  }
  const std::int64_t start = clip_start(size, span, clip.start, key, Operation::kVideoClip);
  std::int64_t at = start;
  for (std::int64_t& number : numbers) {
    number = begin + at;
    if (at + clip.every < size) at += clip.every;
  }
  return numbers;
}

}  // namespace shardwise::detail
