// Reads one video or sound for the script media_matrix.py: `read_media video|audio FILE`. First
// prints a line "video FRAMES HEIGHT WIDTH" or "audio RATE CHANNELS". Each line of standard input
// is a frame's number or a range of seconds. For each line, prints "ok BEGIN SIZE" followed by SIZE
// bytes: the frame, or the samples. If reading fails, prints "refused TEXT".

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "shardwise/base/error.h"
#include "shardwise/decode/audio_reader.h"
#include "shardwise/decode/video_reader.h"

namespace {

void answer(double begin, const void* bytes, std::size_t size) {
  std::printf("ok %.9f %zu\n", begin, size);
  std::fwrite(bytes, 1, size, stdout);
}

/// Calls `read` for each line of the input, and prints its result.
template <class Read>
void answer_lines(const Read& read) {
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    try {
      read(words);
    } catch (const shardwise::BadField& error) {
      std::printf("refused %s\n", error.what());
    }
    std::fflush(stdout);
  }
}

void read_video(const std::string& bytes) {
  shardwise::VideoReader video(bytes);
  const auto& info = video.info();
  std::printf("video %lld %lld %lld\n", static_cast<long long>(info.num_frames),
              static_cast<long long>(info.height), static_cast<long long>(info.width));
  std::vector<std::uint8_t> frame(video.frame_bytes());
  answer_lines([&](std::istringstream& words) {
    std::int64_t number = 0;
    words >> number;
    video.read(std::span(&number, 1), frame);
    answer(video.times()[static_cast<std::size_t>(number)], frame.data(), frame.size());
  });
}

void read_audio(const std::string& bytes) {
  shardwise::AudioReader audio(bytes);
  std::printf("audio %d %d\n", audio.info().sample_rate, audio.info().channels);
  answer_lines([&](std::istringstream& words) {
    double begin = 0;
    double end = 0;
    const bool has_range = static_cast<bool>(words >> begin >> end);
    const auto clip = has_range ? audio.read(begin, end) : audio.read();
    answer(clip.begin_seconds, clip.samples.data(), clip.samples.size() * sizeof(float));
  });
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  std::ifstream file(argv[2], std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (std::string(argv[1]) == "video") {
    read_video(bytes.str());
  } else {
    read_audio(bytes.str());
  }
  return 0;
} catch (const shardwise::BadField& error) {
  std::printf("refused %s\n", error.what());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "read_media: %s\n", error.what());
  return 1;
}
