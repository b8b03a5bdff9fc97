#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

// Small videos and sounds for tests, benches and the fuzzers' seeds, encoded by libav.

namespace shardwise::fuzz {

/// True if this libavcodec has the named encoder. Distributions build it with different encoders.
bool has_encoder(const std::string& name);

struct VideoSpec {
  std::string codec = "mpeg4";
  std::string container = "mp4";
  std::string format = "yuv420p";  ///< the pixel format
  int width = 64;
  int height = 48;
  int num_frames = 30;
  int group = 10;    ///< frames from one key frame to the next
  int b_frames = 0;  ///< largest number of consecutive frames that are predicted from later frames
  int rate = 25;     ///< frames per second; the unit of `times` is 1 / (100 * rate) seconds
  /// Time at which each frame is shown; empty means evenly from 0.
  std::vector<std::int64_t> times = {};
  int matrix = 2;  ///< AVCOL_SPC_*: the conversion of RGB to YUV; 2 means unspecified
  bool full_range = false;
  /// Y, U and V of all pixels; empty means that each frame shows its number.
  std::vector<int> color = {};
  /// The first four entries of a display matrix, as 1, 0 or -1; empty means no matrix.
  std::vector<int> turn = {};
  bool moves = false;       ///< show moving waves and noise, which take as long to decode as real
                            ///< pictures
  bool with_sound = false;  ///< adds an AAC track as long as the video
  std::map<std::string, std::string> codec_options = {};
  std::map<std::string, std::string> muxer_options = {};
};

/// Returns the bytes of a file. A frame shows its number as 4 x 4 black or white squares. Each
/// square has a quarter of the picture's width and height. The first square is the lowest bit.
std::string encode_video(const VideoSpec& spec);
/// Returns the frame number that RGB pixels show.
int shown_number(const std::uint8_t* rgb, int width, int height);

struct SoundSpec {
  std::string codec = "flac";
  std::string container = "flac";
  int sample_rate = 8000;
  int channels = 1;
  int num_samples = 8000;
  int gap = 0;  ///< samples by which the second half is delayed; negative means earlier
  /// Returns the time of a sample, in samples. Empty means that the time is the sample's number.
  /// Only for codecs without state.
  std::function<std::int64_t(std::int64_t)> clock = {};
  std::map<std::string, std::string> muxer_options = {};
};

/// Returns a file's bytes. Channel c of sample i is test_sound(c, i, sample_rate), in 16 bits or in
/// the codec's format.
std::string encode_sound(const SoundSpec& spec);
/// Returns the value of a sample in [-0.5, 0.5]: two tones, which differ between channels.
double test_sound(int channel, std::int64_t sample, int sample_rate);

}  // namespace shardwise::fuzz
