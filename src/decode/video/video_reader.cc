#include "shardwise/decode/video_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "decode/video/failure.h"
#include "decode/video/video_decoder.h"

namespace shardwise {

struct VideoReader::Impl {
  Impl(std::string_view bytes, const Options& options)
      : where(options.where), decoder(bytes, options.max_pixels, options.max_frames) {
    info.height = decoder.height();
    info.width = decoder.width();
    info.num_frames = decoder.num_frames();
    info.begin_seconds = decoder.times().front();
    info.end_seconds = decoder.end_time();
    const double duration = info.end_seconds - info.begin_seconds;
    if (duration > 0) info.frames_per_second = static_cast<double>(info.num_frames) / duration;
    info.codec = decoder.codec();
    info.has_audio = decoder.has_audio();
  }

  void require_room(std::int64_t count, std::size_t size) const {
    const auto frame_bytes = static_cast<std::uint64_t>(info.height * info.width) * 3;
    if (size % frame_bytes == 0 && size / frame_bytes == static_cast<std::uint64_t>(count)) return;
    throw InvalidArgument("the memory for " + counted(static_cast<std::uint64_t>(count), "frame") +
                              " has " + counted(size, "byte"),
                          where, "give " + counted(frame_bytes, "byte") + " per frame");
  }

  void require_frame(std::int64_t number) const {
    if (number >= 0 && number < info.num_frames) return;
    throw Error(ErrorCode::kOutOfRange, "the video has no frame " + std::to_string(number), where,
                "choose frames in [0, " + std::to_string(info.num_frames) + ")");
  }

  const std::string where;
  detail::VideoDecoder decoder;
  Info info;
};

VideoReader::VideoReader(std::string_view bytes) : VideoReader(bytes, Options{}) {}

VideoReader::VideoReader(std::string_view bytes, Options options)
    : impl_(detail::with_place("the video cannot be read", options.where,
                               [&] { return std::make_unique<Impl>(bytes, options); })) {}

VideoReader::~VideoReader() = default;
VideoReader::VideoReader(VideoReader&&) noexcept = default;
VideoReader& VideoReader::operator=(VideoReader&&) noexcept = default;

const VideoReader::Info& VideoReader::info() const noexcept { return impl_->info; }

std::span<const double> VideoReader::times() const noexcept { return impl_->decoder.times(); }

std::int64_t VideoReader::frame_at(double seconds) const {
  const Info& info = impl_->info;
  if (!(seconds >= info.begin_seconds && seconds < info.end_seconds)) {
    throw Error(ErrorCode::kOutOfRange,
                "the video has no frame at " + std::to_string(seconds) + " s", impl_->where,
                "choose times in [" + std::to_string(info.begin_seconds) + ", " +
                    std::to_string(info.end_seconds) + ")");
  }
  const auto all = times();
  return std::upper_bound(all.begin(), all.end(), seconds) - all.begin() - 1;
}

VideoReader::Range VideoReader::frames_in(double begin_seconds, double end_seconds) const noexcept {
  const auto all = times();
  const auto begin = std::lower_bound(all.begin(), all.end(), begin_seconds);
  const auto end = std::lower_bound(begin, all.end(), end_seconds);
  return {begin - all.begin(), end - all.begin(), 1};
}

std::size_t VideoReader::frame_bytes() const noexcept {
  return static_cast<std::size_t>(impl_->info.height * impl_->info.width) * 3;
}

void VideoReader::read(std::span<const std::int64_t> numbers, std::span<std::uint8_t> frames) {
  impl_->require_room(static_cast<std::int64_t>(numbers.size()), frames.size());
  for (const std::int64_t number : numbers) impl_->require_frame(number);
  detail::with_place("the video cannot be decoded", impl_->where,
                     [&] { impl_->decoder.read(numbers, frames.data()); });
}

void VideoReader::read(const Range& range, std::span<std::uint8_t> frames) {
  if (range.step < 1) {
    throw InvalidArgument("frames cannot be taken in steps of " + std::to_string(range.step),
                          impl_->where, "choose a step of 1 or more");
  }
  if (range.end > range.begin) {
    impl_->require_frame(range.begin);
    impl_->require_frame(range.end - 1);
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(range.size()));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = range.begin + static_cast<std::int64_t>(i) * range.step;
  }
  read(numbers, frames);
}

std::uint64_t VideoReader::frames_decoded() const noexcept {
  return impl_->decoder.frames_decoded();
}

}  // namespace shardwise
