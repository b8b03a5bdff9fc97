#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "decode/video/end_mark.h"
#include "decode/video/frame_index.h"
#include "decode/video/libav.h"
#include "decode/video/rgb_converter.h"

namespace shardwise::detail {

/// Implements VideoReader. The texts of its DecodeFailures do not say where the bytes come from.
/// Threads: one at a time.
class VideoDecoder {
 public:
  /// Lifetime: `bytes` must outlive the decoder.
  /// Errors: DecodeFailure; those of reading the bytes, like all calls that read.
  VideoDecoder(MediaView bytes, std::uint64_t max_pixels, std::uint64_t max_frames);

  std::int64_t height() const noexcept;
  std::int64_t width() const noexcept;
  std::int64_t num_frames() const noexcept { return index_->num_frames(); }
  /// Returns each frame's presentation time, in seconds.
  const std::vector<double>& times() const noexcept { return times_; }
  double end_time() const noexcept { return seconds(index_->end_pts()); }
  std::string_view codec() const noexcept;
  bool has_audio() const noexcept { return has_audio_; }
  std::uint64_t frames_decoded() const noexcept { return frames_decoded_; }

  /// Writes the frames with these numbers to `out`, in the order of `numbers`. Numbers must be in
  /// [0, num_frames()). `out` has height x width x 3 bytes per frame.
  /// Errors: DecodeFailure.
  void read(std::span<const std::int64_t> numbers, std::uint8_t* out);

 private:
  /// Whether the decoder's output since entry_ can be trusted.
  enum class Run : std::uint8_t {
    kNone,      ///< decoding must start again from a key frame
    kEntering,  ///< the entry's own frame has not been returned yet
    kProven     ///< decoding began at a true key frame, or at the first packet
  };

  double seconds(std::int64_t pts) const noexcept;
  void choose_stream();
  FrameIndex::Reordering reordering() const noexcept;
  /// Sets size_ if the size is known without decoding.
  void find_size(std::uint64_t max_pixels);
  void open_codec();
  void number_by_decoding();
  /// Decodes until frame_ is the frame with this number.
  void decode(std::int64_t number);
  void decode_from_earlier(std::int64_t number);
  void decode_from(std::optional<std::size_t> entry, std::int64_t number);
  void decode_next(std::int64_t number);
  void require_next();
  bool may_be_first(std::uint32_t frame) const;
  void prove_entry();
  bool receive();
  void send();
  bool is_needless() const noexcept;
  void require_no_complaint(std::uint64_t before) const;
  void require_end();
  void require_whole() const;
  void reset_codec(std::size_t packet);
  void start_at(std::size_t packet);
  void move_to(std::size_t packet);
  bool reach(std::size_t packet);
  bool take_packet();
  bool read_packet();
  void name_packet();

  Demuxer demuxer_;
  unsigned stream_ = 0;
  bool has_audio_ = false;
  AVRational time_base_{};
  struct {
    int width;
    int height;
  } size_{};  ///< size as stored, before turning
  const std::uint64_t max_pixels_;
  EndMark mark_;
  LibavPtr<AVCodecContext> codec_;
  std::optional<FrameIndex> index_;
  std::vector<double> times_;
  std::optional<RgbConverter> converter_;
  Turn turn_;

  LibavPtr<AVPacket> packet_;
  LibavPtr<AVFrame> frame_;      ///< its pts is the number of its packet
  bool has_packet_ = false;      ///< packet_ was read, but not yet sent to the decoder
  std::size_t next_packet_ = 0;  ///< number of the packet that the demuxer returns next
  Run run_ = Run::kNone;
  bool is_used_ = false;          ///< the decoder has received a packet
  bool is_first_run_ = true;      ///< the decoder had received no packet before this run
  bool needs_new_codec_ = false;  ///< decoding from the first packet needs an unused decoder
  bool is_draining_ = false;      ///< the decoder has received the last packet
  std::int64_t shown_ = -1;       ///< number of frame_ if it is complete; otherwise -1
  std::int64_t previous_ = -1;    ///< number of the last frame of this run
  std::size_t entry_ = 0;         ///< packet at which decoding began
  std::size_t sent_ = 0;          ///< last packet that the decoder received
  enum class Pass : std::uint8_t { kNone, kBeforeFirst, kBehindFirst };
  Pass numbering_ = Pass::kNone;  ///< progress of number_by_decoding(), relative to the first frame
  std::uint64_t frames_decoded_ = 0;
};

}  // namespace shardwise::detail
