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

/// Reads the frames of a video in memory, by number and by time.
///
/// Containers: MP4 and MOV, Matroska and WebM. The bytes are read in place. To reach a frame, the
/// reader seeks to the last key frame before it and decodes from there.
///
/// Numbering: frames are numbered from 0, in the order in which the ffmpeg program outputs them
///   when it decodes the file from its start. Reads in any order give the pixels of that sequence,
///   or an error. Flags and timestamps of the container are checked against the headers of the
///   packets. If the timestamps do not determine the numbers, the constructor decodes the file
///   once. This happens if there are only decoding times, equal times, no key frame at the
///   beginning, or two joined streams of MPEG-1, MPEG-2 or MPEG-4. Joined streams are always
///   decoded from their start.
/// Entry points: decoding does not start at a packet without a key frame, or at a packet whose
///   successor's timestamp contradicts its header. For H.264, decoding does not start at an
///   open-GOP key frame with a missing packet nearby. Decoding then starts at an earlier key frame,
///   or at the first packet.
/// Refused: times that do not ascend in the order of the frames, and packets of several frames. An
///   edit list is refused if FFmpeg does not leave out the frames that the list leaves out, e.g. of
///   MPEG-1.
/// Damage: a damaged frame has a number, and reading it is an error. The ffmpeg program omits some
///   damaged frames, e.g. of MPEG-4, and some frames after missing packets. This reader counts
///   them.
/// Edit lists: frames that an edit list leaves out have no number. FFmpeg 5.1 outputs such frames
///   of AV1 and MJPEG.
///
/// Times: the container's timestamps, in seconds, after its edit lists are applied. The first time
///   need not be 0, and frames may have equal times. If a container has only decoding times, frame
///   i has the i-th decoding time.
/// Streams: if a file has several video streams, its default stream is read, else the largest. If
///   Matroska files are concatenated, only the first is read, like in FFmpeg.
/// Pixels: uint8 RGB, [H, W, 3], equal to FFmpeg's `-pix_fmt rgb24`, with the matrix and range that
///   the stream states. Frames are rotated by multiples of 90 degrees or mirrored, as the container
///   says. Other display matrices are refused. Display orientation messages within H.264 and HEVC
///   are ignored. (The ffmpeg program applies each to the frames that carry it.) Non-square pixels
///   are not stretched. A frame that is damaged, or differs in size from the others, is an error.
///
/// Threads: one at a time; different readers may run at once. A reader starts no threads. It
///   decodes on the calling thread, so the pixels do not depend on the machine's cores.
/// Lifetime: `bytes` must outlive the reader.
/// Effects: the first reader sets libav's callback for messages (av_log_set_callback). It collects
///   messages of readers, and passes others to libav's default callback. A reader prints nothing.
///   No content of a file can open another file or a connection.
/// Errors: BadField if the bytes are not a video of these containers, are truncated or damaged, or
///   exceed a limit.
class SHARDWISE_EXPORT VideoReader {
 public:
  struct Options {
    /// Name of the bytes for error texts: a shard and sample, or a path.
    std::string where = {};
    /// Largest frame in pixels. Larger frames are refused before memory is allocated. A decoder
    /// needs memory for up to about 20 frames.
    std::uint64_t max_pixels = std::uint64_t{1} << 26;
    /// Largest number of frames; longer videos are refused. The reader's index takes about 56 bytes
    /// per frame.
    std::uint64_t max_frames = std::uint64_t{1} << 24;
  };

  struct Info {
    std::int64_t height = 0;  ///< of a displayed frame, in pixels
    std::int64_t width = 0;
    std::int64_t num_frames = 0;
    double begin_seconds = 0;      ///< time of the first frame
    double end_seconds = 0;        ///< end of the last frame
    double frames_per_second = 0;  ///< average
    std::string codec = {};        ///< libav's name of the codec, e.g. "h264"
    bool has_audio = false;        ///< true if AudioReader can read a sound from this file
  };

  /// Frame numbers begin, begin + step, ... below end.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t step = 1;

    /// Number of frames; 0 for a step below 1. REQUIRES: begin >= 0.
    [[nodiscard]] std::int64_t size() const noexcept {
      return end > begin && step > 0 ? (end - begin - 1) / step + 1 : 0;
    }
  };

  /// Locates the frames. It decodes nothing, with two exceptions. It decodes one frame if the
  /// container does not state the frames' size (MPEG-4 part 2). It decodes the whole file once if
  /// the timestamps do not determine the numbers (see Numbering).
  /// Cost: O(frames). For Matroska all bytes are read. For MP4 these are read: the tables, the
  ///   first 16 packets, all packets of up to 256 bytes, and the headers of key packets and of
  ///   their successors. For H.264 with open GOPs, up to 32 packets after each key packet are read.
  /// Errors: BadField.
  explicit VideoReader(std::string_view bytes);
  VideoReader(std::string_view bytes, Options options);
  ~VideoReader();
  VideoReader(VideoReader&&) noexcept;
  VideoReader& operator=(VideoReader&&) noexcept;

  [[nodiscard]] const Info& info() const noexcept;
  /// Time at which each frame is shown, in seconds, never descending.
  [[nodiscard]] std::span<const double> times() const noexcept;
  /// Returns the number of the frame shown at this time: the last frame whose time is at most
  /// `seconds`.
  /// Errors: OutOfRange if the time is not in [begin_seconds, end_seconds).
  [[nodiscard]] std::int64_t frame_at(double seconds) const;
  /// Returns the frames whose times are in [begin, end). Adjacent time ranges return each frame
  /// exactly once.
  [[nodiscard]] Range frames_in(double begin_seconds, double end_seconds) const noexcept;

  /// Bytes per frame: height x width x 3.
  [[nodiscard]] std::size_t frame_bytes() const noexcept;
  /// Writes the frames with these numbers, in any order and with repetitions, as uint8 [T, H, W,
  /// 3].
  /// Cost: each frame is decoded once, plus the frames from the key frame before it. Decoding
  ///   continues from the last decoded frame of an earlier call. In a stream without key frames
  ///   (gradual refresh), all earlier frames are decoded.
  /// Errors: BadField. OutOfRange for a number outside [0, num_frames). InvalidArgument if `frames`
  ///   is not numbers.size() * frame_bytes() long. The reader stays usable.
  void read(std::span<const std::int64_t> numbers, std::span<std::uint8_t> frames);
  /// Writes the frames of a range, like read(numbers).
  /// Errors: also InvalidArgument for a step below 1.
  void read(const Range& range, std::span<std::uint8_t> frames);

  /// Frames decoded so far, including those decoded to reach the requested ones.
  [[nodiscard]] std::uint64_t frames_decoded() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise
