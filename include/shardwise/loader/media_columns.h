#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "shardwise/base/export.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/image_transform.h"

namespace shardwise {

/// Which frames of each video a column shows.
///
///     {.frames = 16}                                                     evenly over all of it
///     {.frames = 16, .every = 4, .start = Column::ClipStart::kRandom}    each 4th of some part
///     {.frames = 8, .every = 1, .begin_seconds = 2}                      from a time on
///
/// The videos, their frames and their times are those of VideoReader.
struct Column::VideoClip {
  /// T: from 1 to 65,536.
  std::int64_t frames = 16;
  /// 0: the frames are spread evenly over the n of the range, from the first to the last: number i
  /// is i * (n - 1) / (T - 1), rounded down, and the first frame for T = 1. Otherwise each
  /// every-th frame is taken, (T - 1) * every + 1 frames from the first to the last.
  std::int64_t every = 0;
  /// Where the clip begins in the range. Not with `every` 0, where it fills it.
  ClipStart start = ClipStart::kFirst;
  /// The range: the frames whose times lie in [begin, end). A range without any is a BadField.
  double begin_seconds = -std::numeric_limits<double>::infinity();
  double end_seconds = std::numeric_limits<double>::infinity();
  /// What becomes of a range that is too short. As it is, the last frame that was taken is repeated
  /// (torchcodec's "repeat_last"); spread frames repeat each other. Otherwise it is a BadField.
  bool refuse_short = false;
  /// As VideoReader::Options.
  std::uint64_t max_pixels = std::uint64_t{1} << 26;
  std::uint64_t max_frames = std::uint64_t{1} << 24;
};

/// Which part of each sound a column has, and how. The sounds, their samples and their times are
/// those of AudioReader.
struct Column::AudioClip {
  int sample_rate = 0;  ///< samples a second, resampled; 0: as stored
  int channels = 0;     ///< mixed; 0: as stored
  /// How long the clip is. 0: all of the range.
  double seconds = 0;
  /// Where the clip begins in the range. Only with `seconds`.
  ClipStart start = ClipStart::kFirst;
  /// The range. One without a sample is a BadField.
  double begin_seconds = -std::numeric_limits<double>::infinity();
  double end_seconds = std::numeric_limits<double>::infinity();
  /// All rows have round(seconds * sample_rate) samples, with zeros behind shorter sounds. Needs
  /// `seconds`, `sample_rate` and `channels`.
  bool fixed_length = false;
  /// As AudioReader::Options.
  std::uint64_t max_samples = std::uint64_t{1} << 28;
};

// In the library shardwise::video, which is built on the loader: link it, too. Where Shardwise was
// built without FFmpeg's libraries, there is none, and find_package() says so.
namespace columns {

/// A clip of each video: [N, T, 3, H, W] or [N, T, H, W, 3], of the layout and type that the
/// transform says. It is made as for images, and all frames of a clip get the same crop, flip and
/// colours. Unless it gives all videos one size, those of a batch must be of one.
/// Cost: what VideoReader::read() costs: from the key frame before the first frame on, nothing
///   behind the last one. Memory of a thread, beside the batch: the decoder's, and one frame.
/// Errors: InvalidArgument for a clip or transform that cannot be. When a sample is loaded:
///   NotFound; BadField: no video, cut, damaged where it is decoded, or beyond a limit.
SHARDWISE_EXPORT Column video(const std::string& fields, const Column::VideoClip& clip,
                              const ImageTransform& transform = {});
/// When each frame of the clip is shown, in seconds: float64 [N, T]. With the same `clip` these are
/// the frames that video() gives, also where the start is random.
/// Cost: reads where the frames are; nothing is decoded. Errors: as video().
SHARDWISE_EXPORT Column video_times(const std::string& fields, const Column::VideoClip& clip);

/// A part of each sound, also of a video's: float32, ragged, each row [C, S]; or [N, C, S] with
/// AudioClip::fixed_length.
/// Cost: as AudioReader::read(). A start that is not the first needs the length of the sound, which
///   the container says; where it does not, or the sound ends before, all of it is decoded to know.
/// Errors: as video().
SHARDWISE_EXPORT Column audio(const std::string& fields, const Column::AudioClip& clip);

}  // namespace columns

}  // namespace shardwise
