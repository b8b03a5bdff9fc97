#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "shardwise/base/export.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/image_transform.h"

namespace shardwise {

/// Which frames of each video a column contains.
///
///     {.frames = 16}                                                     evenly over the video
///     {.frames = 16, .every = 4, .start = Column::ClipStart::kRandom}    every 4th, random start
///     {.frames = 8, .every = 1, .begin_seconds = 2}                      consecutive, from 2 s on
///
/// For supported videos, numbers of frames and times, see VideoReader.
struct Column::VideoClip {
  /// Number of frames T in the clip, 1 to 65,536.
  std::int64_t frames = 16;
  /// If 0, the T frames are spread evenly over the n frames of the range, from the first to the
  /// last. Frame i of the clip is frame i * (n - 1) / (T - 1) of the range, rounded down, or the
  /// first frame if T = 1. If not 0, every `every`-th frame is taken, so the clip spans (T - 1) *
  /// every + 1 frames.
  std::int64_t every = 0;
  /// Where the clip begins in the range. Only possible if `every` is not 0; otherwise the clip
  /// fills the range.
  ClipStart start = ClipStart::kFirst;
  /// The range: frames whose times are in [begin_seconds, end_seconds). An empty range is a
  /// BadField.
  double begin_seconds = -std::numeric_limits<double>::infinity();
  double end_seconds = std::numeric_limits<double>::infinity();
  /// If true, a range that is too short is a BadField. If false, the last taken frame is repeated,
  /// like torchcodec's "repeat_last"; with `every` 0, frames of the range occur several times in
  /// the clip.
  bool refuse_short = false;
  /// See VideoReader::Options.
  std::uint64_t max_pixels = std::uint64_t{1} << 26;
  std::uint64_t max_frames = std::uint64_t{1} << 24;
};

/// Which part of each sound a column contains, and in which format. For supported sounds and times,
/// see AudioReader.
struct Column::AudioClip {
  int sample_rate = 0;  ///< in Hz, after resampling; 0 means the stored rate
  int channels = 0;     ///< after mixing; 0 means the stored number
  /// Length of the clip. 0 means the length of the range.
  double seconds = 0;
  /// Where the clip begins in the range. Requires `seconds`.
  ClipStart start = ClipStart::kFirst;
  /// The range: samples whose times are in [begin_seconds, end_seconds). An empty range is a
  /// BadField.
  double begin_seconds = -std::numeric_limits<double>::infinity();
  double end_seconds = std::numeric_limits<double>::infinity();
  /// Give each row round(seconds * sample_rate) samples, padded with zeros. Requires `seconds`,
  /// `sample_rate` and `channels`.
  bool fixed_length = false;
  /// See AudioReader::Options.
  std::uint64_t max_samples = std::uint64_t{1} << 28;
};

// These columns are in the library shardwise::video; link it in addition. If Shardwise was built
// without FFmpeg's libraries, shardwise::video does not exist, and find_package() reports this.
namespace columns {

/// A clip of each video: [N, T, 3, H, W] or [N, T, H, W, 3], in the transform's layout and type.
/// All frames of a clip get the same crop, flip and colour changes. Unless the transform gives all
/// videos one size, the videos of a batch must have equal sizes.
/// Cost: that of VideoReader::read(): decoding from the key frame before the first frame to the
///   last frame.
/// Memory: per thread, the decoder's memory and one frame.
/// Errors: InvalidArgument for an impossible clip or transform. When a sample is loaded: NotFound.
///   BadField if the field is not a video, is truncated or damaged where it is decoded, or exceeds
///   a limit.
SHARDWISE_EXPORT Column video(const std::string& fields, const Column::VideoClip& clip,
                              const ImageTransform& transform = {});
/// The times at which the clip's frames are shown, in seconds: float64 [N, T]. If video() has the
/// same `clip`, they are the times of its frames, even if the start is random.
/// Cost: locates the frames, and decodes nothing. Errors: see video().
SHARDWISE_EXPORT Column video_times(const std::string& fields, const Column::VideoClip& clip);

/// A clip of each sound, or of the sound of each video: float32, ragged, each row [C, S]. With
/// AudioClip::fixed_length it is [N, C, S].
/// Cost: that of AudioReader::read(). Unless the clip starts at the beginning, the length of the
///   sound must be known. If the container does not state it, or the sound ends earlier, the whole
///   sound is decoded.
/// Errors: see video().
SHARDWISE_EXPORT Column audio(const std::string& fields, const Column::AudioClip& clip);

}  // namespace columns

}  // namespace shardwise
