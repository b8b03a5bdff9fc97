#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "media_bytes.h"
#include "shardwise/decode/video_reader.h"
#include "support/sanitizers.h"

namespace shardwise::test {

using Numbers = std::vector<std::int64_t>;

inline std::vector<std::uint8_t> read(VideoReader& video, const Numbers& numbers) {
  std::vector<std::uint8_t> frames(numbers.size() * video.frame_bytes());
  video.read(numbers, frames);
  return frames;
}

/// Returns the numbers that are shown in the frames.
inline Numbers shown(VideoReader& video, const Numbers& numbers) {
  const auto frames = read(video, numbers);
  Numbers result;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    result.push_back(fuzz::shown_number(frames.data() + i * video.frame_bytes(),
                                        static_cast<int>(video.info().width),
                                        static_cast<int>(video.info().height)));
  }
  return result;
}

inline Numbers all_numbers(const VideoReader& video) {
  Numbers numbers(static_cast<std::size_t>(video.info().num_frames));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i);
  return numbers;
}

/// True if this libavcodec can encode with `codec`. Under AddressSanitizer, false for libx265,
/// because it leaks a kilobyte.
inline bool can_encode(std::string_view codec) {
#ifdef __SANITIZE_ADDRESS__
  if (codec == "libx265") return false;
#endif
  return fuzz::has_encoder(std::string(codec));
}

}  // namespace shardwise::test
