#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "decode/video/libav.h"
#include "decode/video/packet_headers.h"

namespace shardwise::detail {

/// The positions of a video stream's frames, determined in one pass over the packets, without
/// decoding.
///
/// A packet's number is its position in the file, which is also the order of decoding. A frame's
/// number is its position in the decoder's output, which is the order of presentation. The two
/// differ if frames are predicted from later frames.
///
/// In a correct container, frames are in the order of their packets' times. If a file's tables
/// contradict themselves or the codec's headers, the frames must be numbered by decoding all of
/// them.
class FrameIndex {
 public:
  static constexpr std::uint32_t kNoFrame = std::numeric_limits<std::uint32_t>::max();

  /// Whether the stream's header allows frames that are predicted from later frames.
  enum class Reordering : std::uint8_t { kNone, kUnlikely, kPossible };

  /// Errors: DecodeFailure for more than `max_frames` packets, or for a packet without a time.
  FrameIndex(Demuxer& demuxer, unsigned stream, Reordering reordering, std::uint64_t max_frames);

  /// True if the times do not determine the frames and their order.
  bool needs_decoding() const noexcept { return needs_decoding_; }
  /// True if the first packet is a key frame, according to the container and to its own header.
  bool begins_with_key() const noexcept { return begins_with_key_; }
  /// True if a decoder needs the headers of all packets since the first one.
  bool is_mixed() const noexcept { return is_mixed_; }
  /// Replaces the numbering: frame i is in packet packets[i].
  /// Errors: DecodeFailure if `packets` is empty, or contradicts the packets' times.
  void number(const std::vector<std::uint32_t>& packets);

  std::int64_t num_frames() const noexcept { return static_cast<std::int64_t>(frames_.size()); }
  std::size_t num_packets() const noexcept { return packets_.size(); }
  /// Returns a frame's presentation time, in the stream's time base.
  std::int64_t pts(std::int64_t frame) const { return times_[static_cast<std::size_t>(frame)]; }
  std::int64_t packet_pts(std::size_t packet) const { return packets_[packet].pts; }
  /// Returns the time at which the last frame ends.
  std::int64_t end_pts() const noexcept { return end_pts_; }

  std::size_t packet_of(std::int64_t frame) const {
    return frames_[static_cast<std::size_t>(frame)];
  }
  /// Returns the number of this packet's frame; kNoFrame if the packet shows no frame.
  std::uint32_t frame_of(std::size_t packet) const { return packets_[packet].frame; }
  /// True if the container says that the packet's frame is shown.
  bool is_shown(std::size_t packet) const { return packets_[packet].is_shown; }
  /// Returns the packet at which decoding must begin to get this frame: the last key packet before
  /// it both in decoding and in presentation order. Frames that are shown before a key frame may be
  /// predicted from frames before that key frame.
  std::size_t entry_of(std::int64_t frame) const;
  /// Returns the last key packet before this packet. REQUIRES: packet > 0.
  std::size_t key_before(std::size_t packet) const;
  /// Records that this packet is not a key packet, although the container says so, because frames
  /// after it depend on earlier packets.
  void set_no_key(std::size_t packet) { packets_[packet].is_key = false; }
  /// Returns the number of a packet that the demuxer returned; nullopt if several packets match.
  std::optional<std::size_t> find(const AVPacket& packet) const;

  /// Returns the packet's presentation time, or its decoding time if the container has no
  /// presentation times.
  static std::int64_t time_of(const AVPacket& packet) noexcept {
    return packet.pts != AV_NOPTS_VALUE ? packet.pts : packet.dts;
  }

 private:
  struct Packet {
    std::int64_t pts;
    std::int64_t pos;  ///< offset in the file
    std::uint32_t frame;
    bool is_key;
    bool is_shown;
  };
  class Header;
  /// Observations so far of a pass over the packets.
  struct Pass {
    Reordering reordering;
    bool is_odd = false;        ///< some packet has no frame, or only one field of a frame
    bool has_no_pts = false;    ///< some packets have only a decoding time
    bool is_reordered = false;  ///< times are not ascending
    bool is_crossed = false;    ///< a frame is shown on the wrong side of a key frame
    /// A frame was read that is shown after the last key frame.
    bool is_behind_later = false;
    bool is_behind_reordered = false;  ///< the last frame is shown before an earlier one
    bool is_behind_key = false;        ///< all packets since the last key frame were leading ones
    int num_reordered = 0;             ///< how often an in-order frame followed a reordered one
    std::size_t key = 0;               ///< number of the last key packet
    PacketHeaders::Needed needed{};    ///< headers that are needed for packets after `key`
    /// Equals `key` if H.264 does not reset its decoder at that packet.
    std::optional<std::size_t> open_key = {};
    std::optional<std::size_t> open_before = {};  ///< the same for the key packet before `key`
    /// Key packets with a leading frame whose time is later.
    std::vector<std::size_t> unsure_keys = {};
    /// Time of the last key frame.
    std::int64_t key_pts = std::numeric_limits<std::int64_t>::min();
    std::int64_t last_pts = std::numeric_limits<std::int64_t>::min();
    std::int64_t last_duration = 0;

    /// Compares a frame's time with the times of the key frames.
    void see_time(std::int64_t pts, bool is_key) noexcept;
    /// Records what a packet's own header says about the order.
    void see_order(bool is_reordered_header) noexcept;
    /// True if headers say that frames are predicted from later frames. A single such header may be
    /// damaged.
    bool codec_reorders() const noexcept { return num_reordered >= 2; }
    /// True if the next packet's header must be read and compared with its time.
    bool is_curious(std::size_t num_packets) const noexcept;
  };

  void read_packets(Demuxer& demuxer, unsigned stream, std::uint64_t most, Pass& pass);
  void add(const AVPacket& packet, bool is_shown, Pass& pass);
  void compare_with_key(Header& header, Pass& pass);
  void sort_frames();
  bool is_doubtful(const Pass& pass) const;
  void number_packets();
  void find_end(std::int64_t last_duration);

  std::vector<Packet> packets_;         ///< indexed by packet number
  std::vector<std::uint32_t> frames_;   ///< packet numbers, indexed by frame number
  std::vector<std::int64_t> times_;     ///< indexed by frame number
  std::vector<std::uint32_t> by_time_;  ///< packet numbers, sorted by (pts, pos)
  std::int64_t end_pts_ = 0;
  bool needs_decoding_ = false;
  bool begins_with_key_ = true;
  bool is_mixed_ = false;
  bool is_order_sure_ = true;
};

}  // namespace shardwise::detail
