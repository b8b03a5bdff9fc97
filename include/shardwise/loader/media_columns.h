#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "shardwise/base/export.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/image_transform.h"

namespace shardwise {

/// The frames of each video that a column contains.
///
///     {.frames = 16}                                                     evenly over all of it
///     {.frames = 16, .every = 4, .start = Column::ClipStart::kRandom}    each 4th of some part
///     {.frames = 8, .every = 1, .begin_seconds = 2}                      from a time on
///
/// For supported videos, numbers of frames and times, see VideoReader.
struct Column::VideoClip {
  /// Number of frames T in the clip, 1 to 65,536.
  std::int64_t frames = 16;
  /// If 0, the frames are spread evenly over the n frames of the range, from the first to the last.
  /// Frame i of the clip is number i * (n - 1) / (T - 1), rounded down, or the first one for T = 1.
  /// Otherwise every `every`-th frame is taken, which spans (T - 1) * every + 1 frames.
  std::int64_t every = 0;
  /// Where the clip begins in the range. Not possible if `every` is 0, when the clip fills the
  /// range.
  ClipStart start = ClipStart::kFirst;
  /// The range: frames whose times are in [begin, end). An empty range is a BadField.
  double begin_seconds = -std::numeric_limits<double>::infinity();
  double end_seconds = std::numeric_limits<double>::infinity();
  /// Treat a range that is too short as a BadField. If false, the last frame taken is repeated,
  /// like torchcodec's "repeat_last"; evenly spread frames repeat each other.
  bool refuse_short = false;
  /// See VideoReader::Options.
  std::uint64_t max_pixels = std::uint64_t{1} << 26;
  std::uint64_t max_frames = std::uint64_t{1} << 24;
};

/// The part of each sound that a column contains, and its format. For supported sounds and times,
/// see AudioReader.
struct Column::AudioClip {
  int sample_rate = 0;  ///< in Hz, after resampling; 0 means the stored rate
  int channels = 0;     ///< after mixing; 0 means the stored number
  /// Length of the clip. 0 means the whole range.
  double seconds = 0;
  /// Where the clip begins in the range. Requires `seconds`.
  ClipStart start = ClipStart::kFirst;
  /// The range. A range without samples is a BadField.
  double begin_seconds = -std::numeric_limits<double>::infinity();
  double end_seconds = std::numeric_limits<double>::infinity();
  /// Give each row round(seconds * sample_rate) samples, padded with zeros. Requires `seconds`,
  /// `sample_rate` and `channels`.
  bool fixed_length = false;
  /// See AudioReader::Options.
  std::uint64_t max_samples = std::uint64_t{1} << 28;
};

// These columns are in the library shardwise::video, which must be linked in addition. If Shardwise
// was built without FFmpeg's libraries, it is missing, and find_package() says so.
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
/// The times at which the clip's frames are shown, in seconds: float64 [N, T]. With the same `clip`
/// they belong to the frames of video(), even if the start is random.
/// Cost: reads the places of the frames; nothing is decoded. Errors: see video().
SHARDWISE_EXPORT Column video_times(const std::string& fields, const Column::VideoClip& clip);

/// A part of each sound, which may be that of a video: float32, ragged, each row [C, S]. With
/// AudioClip::fixed_length it is [N, C, S].
/// Cost: that of AudioReader::read(). Unless the clip starts at the beginning, the length of the
///   sound must be known. If the container does not state it, or the sound ends earlier, the whole
///   sound is decoded.
/// Errors: see video().
SHARDWISE_EXPORT Column audio(const std::string& fields, const Column::AudioClip& clip);

}  // namespace columns

}  // namespace shardwise
