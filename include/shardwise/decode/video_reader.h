#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise {

/// The frames of a video in memory, by number and by time.
///
/// Containers: MP4 and MOV, Matroska and WebM. The bytes are read in place, and a frame is found by
/// seeking: decoding begins at the last key frame before it.
///
/// Frames are numbered from 0 as FFmpeg's program gives them when it decodes the file from its
/// start. A read in any order gives the pixels of that sequence, or an error. Flags and times of a
/// container are checked against the packets' own headers.
///
/// Entry: decoding begins at the last key frame before the frame that is read. An entry is not used
///   if its packet holds no key frame, if the next packet's time contradicts its header, or if a
///   packet is missing near an open key frame of H.264. Then an earlier entry is used, or the first
///   packet.
/// Numbering: the constructor decodes the file once if its times cannot number the frames (times of
///   decoding only, equal times, no key frame at the beginning, two streams of MPEG-1, MPEG-2 or
///   MPEG-4 joined). Joined streams are always read from their start.
/// Refused: times that do not ascend in the order of the frames; packets of several frames; an edit
///   list where FFmpeg leaves out other frames than the list says, e.g. of MPEG-1.
/// Damage: a damaged frame keeps its number, and reading it is an error. FFmpeg's program leaves
///   some damaged frames out, e.g. of MPEG-4, and some frames behind missing packets. They are
///   counted here.
/// Edit lists: frames that a list leaves out are not counted. FFmpeg 5.1 shows those of AV1 and
///   MJPEG.
///
/// Times are those of the container, in seconds after its edit lists; the first one need not be 0.
/// Several frames may have one time. Where a container has times of decoding alone, the first frame
/// is shown at the first of them, and so on. Of several videos in a file the default one is read,
/// else the largest. Of concatenated Matroska files only the first is read, as FFmpeg does.
///
/// Pixels are uint8 RGB, [H, W, 3], as FFmpeg gives for `-pix_fmt rgb24`: with the matrix and
/// range that the stream names. Frames are rotated by multiples of 90 degrees, or mirrored, as the
/// container says; other display matrices are refused. Display orientation messages within H.264
/// and HEVC are not read: FFmpeg's program applies them only to the frames that carry them. Pixels
/// that are not square are not stretched. A frame that is damaged, or of another size than the
/// others, is an error.
///
/// Threads: one at a time; different readers may run at once. It starts no threads: decoding is
///   done by the calling one, so that the pixels do not depend on the machine's cores.
/// Lifetime: `bytes` must outlive the reader.
/// Effects: the first reader sets libav's callback for messages (av_log_set_callback), which keeps
///   those of readers, and gives those of others to libav's default one. Nothing is printed, and
///   nothing in a file makes it open another file or a connection.
/// Errors: BadField: bytes that are not such a video, are cut or damaged, or exceed a limit.
class SHARDWISE_EXPORT VideoReader {
 public:
  struct Options {
    /// Names the bytes in errors: a shard and sample, or a path.
    std::string where = {};
    /// Larger frames are refused before memory is taken for them. A decoder holds up to about 20
    /// frames.
    std::uint64_t max_pixels = std::uint64_t{1} << 26;
    /// Videos with more frames are refused. An index of about 56 bytes a frame is kept.
    std::uint64_t max_frames = std::uint64_t{1} << 24;
  };

  struct Info {
    std::int64_t height = 0;  ///< of a frame as it is shown, in pixels
    std::int64_t width = 0;
    std::int64_t num_frames = 0;
    double begin_seconds = 0;      ///< the first frame's time
    double end_seconds = 0;        ///< when the last frame's time ends
    double frames_per_second = 0;  ///< on average
    std::string codec = {};        ///< libav's name for it, as "h264"
    bool has_audio = false;        ///< AudioReader reads it
  };

  /// Frame numbers begin, begin + step, ... below end.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t step = 1;

    /// 0 also for a step below 1. REQUIRES: begin >= 0.
    [[nodiscard]] std::int64_t size() const noexcept {
      return end > begin && step > 0 ? (end - begin - 1) / step + 1 : 0;
    }
  };

  /// Reads where the frames are. Nothing is decoded, but for one frame where the container does not
  /// know its size (MPEG-4 part 2), and but for files whose times contradict their frames (above).
  /// Cost: O(frames); of an MP4 its tables, its first 16 packets, packets of up to 256 bytes, and
  ///   headers of key packets and of those directly behind them are read, of H.264 with open groups
  ///   of up to 32 behind them; of Matroska all of the bytes.
  /// Errors: BadField.
  explicit VideoReader(std::string_view bytes);
  VideoReader(std::string_view bytes, Options options);
  ~VideoReader();
  VideoReader(VideoReader&&) noexcept;
  VideoReader& operator=(VideoReader&&) noexcept;

  [[nodiscard]] const Info& info() const noexcept;
  /// When each frame is shown, in seconds; never descending.
  [[nodiscard]] std::span<const double> times() const noexcept;
  /// The frame that is shown at this time: the last one that began by then.
  /// Errors: OutOfRange: not in [begin_seconds, end_seconds).
  [[nodiscard]] std::int64_t frame_at(double seconds) const;
  /// The frames whose times lie in [begin, end). Ranges that follow each other give each frame
  /// once.
  [[nodiscard]] Range frames_in(double begin_seconds, double end_seconds) const noexcept;

  /// The bytes of one frame: height x width x 3.
  [[nodiscard]] std::size_t frame_bytes() const noexcept;
  /// Writes the frames with these numbers, in any order and with repetitions, as uint8 [T, H, W,
  /// 3].
  /// Cost: each frame is decoded once, with those from the key frame before it on, and none of
  ///   those after it; what an earlier call decoded last is gone on with. Without a key frame, as
  ///   where pictures are refreshed in parts: with all those before it.
  /// Errors: BadField; OutOfRange: a number outside [0, num_frames); InvalidArgument: `frames` is
  ///   not numbers.size() * frame_bytes() long. The reader stays usable.
  void read(std::span<const std::int64_t> numbers, std::span<std::uint8_t> frames);
  /// The same for a range: all of it, or each step-th frame.
  /// Errors: InvalidArgument also for a step below 1.
  void read(const Range& range, std::span<std::uint8_t> frames);

  /// How many frames were decoded by now, for those asked for and on the way to them.
  [[nodiscard]] std::uint64_t frames_decoded() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
