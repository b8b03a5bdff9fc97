#include <algorithm>
#include <cstring>
#include <memory>

#include "media_bytes.h"
#include "shardwise/base/error.h"
#include "shardwise/decode/audio_reader.h"
#include "shardwise/decode/video_reader.h"
#include "targets.h"

namespace shardwise::fuzz {
namespace {

constexpr std::size_t kMaxBytes = 1 << 17;

void read_video(std::string_view bytes) {
  VideoReader video(bytes, {.max_pixels = 1 << 14, .max_frames = 1 << 10});
  const auto& info = video.info();
  SHARDWISE_FUZZ_REQUIRE(info.num_frames > 0 && info.num_frames <= 1 << 10);
  SHARDWISE_FUZZ_REQUIRE(info.width > 0 && info.height > 0);
  SHARDWISE_FUZZ_REQUIRE(info.width * info.height <= 1 << 14);
  SHARDWISE_FUZZ_REQUIRE(std::is_sorted(video.times().begin(), video.times().end()));
  std::vector<std::uint8_t> frames(3 * video.frame_bytes());
  for (const std::int64_t number : {info.num_frames - 1, std::int64_t{0}, info.num_frames / 2}) {
    try {
      video.read(std::vector<std::int64_t>{number, 0, number}, frames);
      const std::size_t size = video.frame_bytes();
      SHARDWISE_FUZZ_REQUIRE(std::memcmp(frames.data(), frames.data() + 2 * size, size) == 0);
    } catch (const BadField&) {
      continue;
    }
  }
}

void read_audio(std::string_view bytes, bool is_mixed) {
  AudioReader audio(
      bytes,
      {.sample_rate = is_mixed ? 16000 : 0, .channels = is_mixed ? 1 : 0, .max_samples = 1 << 18});
  for (const auto& [begin, end] : {std::pair{-1e300, 1e300}, {1.5, 1.75}, {0.0, 0.125}}) {
    try {
      const AudioReader::Clip clip = audio.read(begin, end);
      SHARDWISE_FUZZ_REQUIRE(clip.samples.size() ==
                             static_cast<std::size_t>(clip.channels * clip.num_samples));
    } catch (const BadField&) {
      continue;
    }
  }
}

}  // namespace

void media_target(std::string_view input) {
  if (input.empty() || input.size() > kMaxBytes) return;
  const int control = input[0] & 3;
  // A copy of exactly this size, so that AddressSanitizer detects reads beyond it.
  const std::size_t size = input.size() - 1;
  const std::unique_ptr<char[]> copy(new char[size]);
  std::memcpy(copy.get(), input.data() + 1, size);
  const std::string_view bytes(copy.get(), size);
  try {
    if (control < 2) read_video(bytes);
    if (control >= 1) read_audio(bytes, control == 3);
  } catch (const BadField&) {
    return;
  }
}

std::vector<std::string> media_seeds() {
  std::vector<std::string> seeds;
  const auto add = [&](char control, const std::string& bytes) {
    seeds.push_back(std::string(1, control) + bytes);
  };
  VideoSpec small;
  small.width = 16;
  small.height = 16;
  small.num_frames = 6;
  small.group = 3;
  for (const char* codec : {"mpeg4", "libx264", "libvpx", "libvpx-vp9", "mjpeg"}) {
    if (!has_encoder(codec)) continue;
    VideoSpec spec = small;
    spec.codec = codec;
    if (spec.codec == "mjpeg") spec.format = "yuvj420p";
    if (spec.codec == "mpeg4") spec.b_frames = 1;
    if (spec.codec.starts_with("libvpx")) spec.container = "webm";
    add('\0', encode_video(spec));
  }
  VideoSpec beside = small;
  beside.with_sound = true;
  add('\1', encode_video(beside));
  beside.container = "matroska";
  add('\1', encode_video(beside));
  VideoSpec parts = small;
  parts.muxer_options = {{"movflags", "frag_keyframe+empty_moov"}};
  add('\0', encode_video(parts));
  VideoSpec turned = small;
  turned.turn = {0, 1, -1, 0};
  add('\0', encode_video(turned));
  const std::pair<const char*, const char*> sounds[] = {
      {"pcm_s16le", "wav"}, {"flac", "flac"}, {"libmp3lame", "mp3"}, {"libvorbis", "ogg"},
      {"libopus", "ogg"},   {"flac", "ogg"},  {"alac", "mov"},       {"adpcm_ms", "wav"}};
  for (const auto& [codec, container] : sounds) {
    if (!has_encoder(codec)) continue;
    add(seeds.size() % 2 == 0 ? '\2' : '\3',
        encode_sound({.codec = codec, .container = container, .num_samples = 1000}));
  }
  return seeds;
}

}  // namespace shardwise::fuzz
