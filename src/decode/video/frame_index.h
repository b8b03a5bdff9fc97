#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// Where the frames of a video stream are: made by one pass over its packets, without decoding.
///
/// A packet's number is its place in the file (the order of decoding), a frame's number its place
/// in time (the order of presentation). They differ where frames are predicted from later ones.
class FrameIndex {
 public:
  /// Errors: DecodeFailure: more than `max_frames` packets, or packets without a time.
  FrameIndex(Demuxer& demuxer, unsigned stream, std::uint64_t max_frames);

  std::int64_t num_frames() const noexcept { return static_cast<std::int64_t>(frames_.size()); }
  std::size_t num_packets() const noexcept { return packets_.size(); }
  /// The time at which a frame is shown, in the stream's time base.
  std::int64_t pts(std::int64_t frame) const { return packets_[packet_of(frame)].pts; }
  std::int64_t packet_pts(std::size_t packet) const { return packets_[packet].pts; }
  /// The end of the last frame's time.
  std::int64_t end_pts() const noexcept { return end_pts_; }

  std::size_t packet_of(std::int64_t frame) const {
    return frames_[static_cast<std::size_t>(frame)];
  }
  /// The packet to begin with for this frame: the last key packet before it in both orders. Frames
  /// that are shown before a key frame may be predicted across it.
  std::size_t entry_of(std::int64_t frame) const;
  /// The last key packet before this one, which is not 0.
  std::size_t key_before(std::size_t packet) const;
  /// The number of a packet that the demuxer gave.
  std::optional<std::size_t> find(const AVPacket& packet) const;

  /// The packet's time: of presentation where the container has it.
  static std::int64_t time_of(const AVPacket& packet) noexcept {
    return packet.pts != AV_NOPTS_VALUE ? packet.pts : packet.dts;
  }

 private:
  struct Packet {
    std::int64_t pts;
    std::int64_t pos;  ///< in the file
    bool is_key;
    bool is_shown;
  };

  void sort_frames();
  void find_end(std::int64_t last_duration);

  std::vector<Packet> packets_;         ///< by packet number
  std::vector<std::uint32_t> frames_;   ///< packet numbers by frame number
  std::vector<std::uint32_t> by_time_;  ///< packet numbers by (pts, pos)
  std::int64_t end_pts_ = 0;
};

}  // namespace shardwise::detail
