#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "decode/video/libav.h"
#include "decode/video/packet_headers.h"

namespace shardwise::detail {

/// Where the frames of a video stream are: made by one pass over its packets, without decoding.
///
/// A packet's number is its place in the file (the order of decoding), a frame's number its place
/// among the frames that a decoder gives (the order of presentation). They differ where frames are
/// predicted from later ones.
///
/// The order of the packets' times is that of the frames, if the container is honest. Files whose
/// tables contradict themselves or the codec's headers need a decoding pass to number the frames.
class FrameIndex {
 public:
  static constexpr std::uint32_t kNoFrame = std::numeric_limits<std::uint32_t>::max();

  /// Whether a stream has frames that are predicted from later ones, as far as its header says.
  enum class Reordering : std::uint8_t { kNone, kUnlikely, kPossible };

  /// Errors: DecodeFailure: more than `max_frames` packets, or packets without a time.
  FrameIndex(Demuxer& demuxer, unsigned stream, Reordering reordering, std::uint64_t max_frames);

  /// Whether the times do not tell which frames there are, and in which order.
  bool needs_decoding() const noexcept { return needs_decoding_; }
  /// Whether the first packet is a key frame, by its own header, too.
  bool begins_with_key() const noexcept { return begins_with_key_; }
  /// Whether a decoder needs all that it was told from the first packet on.
  bool is_mixed() const noexcept { return is_mixed_; }
  /// Numbers the frames anew: `packets` has the number of each frame's packet. Errors:
  /// DecodeFailure: there are none, or their times contradict them.
  void number(const std::vector<std::uint32_t>& packets);

  std::int64_t num_frames() const noexcept { return static_cast<std::int64_t>(frames_.size()); }
  std::size_t num_packets() const noexcept { return packets_.size(); }
  /// The time at which a frame is shown, in the stream's time base.
  std::int64_t pts(std::int64_t frame) const { return times_[static_cast<std::size_t>(frame)]; }
  std::int64_t packet_pts(std::size_t packet) const { return packets_[packet].pts; }
  /// The end of the last frame's time.
  std::int64_t end_pts() const noexcept { return end_pts_; }

  std::size_t packet_of(std::int64_t frame) const {
    return frames_[static_cast<std::size_t>(frame)];
  }
  /// The number of the frame that comes of this packet; kNoFrame: none that is shown.
  std::uint32_t frame_of(std::size_t packet) const { return packets_[packet].frame; }
  /// Whether the container wants its frame to be shown.
  bool is_shown(std::size_t packet) const { return packets_[packet].is_shown; }
  /// The packet to begin with for this frame: the last key packet before it in both orders. Frames
  /// that are shown before a key frame may be predicted across it.
  std::size_t entry_of(std::int64_t frame) const;
  /// The last key packet before this one, which is not 0.
  std::size_t key_before(std::size_t packet) const;
  /// Takes note that frames which follow this packet cannot be decoded without those before it,
  /// whatever the container says.
  void set_no_key(std::size_t packet) { packets_[packet].is_key = false; }
  /// The number of a packet that the demuxer gave; nothing where several look like it.
  std::optional<std::size_t> find(const AVPacket& packet) const;

  /// The packet's time: of presentation where the container has it.
  static std::int64_t time_of(const AVPacket& packet) noexcept {
    return packet.pts != AV_NOPTS_VALUE ? packet.pts : packet.dts;
  }

 private:
  struct Packet {
    std::int64_t pts;
    std::int64_t pos;  ///< in the file
    std::uint32_t frame;
    bool is_key;
    bool is_shown;
  };
  class Header;
  /// What a pass over the packets saw.
  struct Pass {
    Reordering reordering;
    bool is_odd = false;               ///< a packet is none, or not one, of the frames
    bool has_no_pts = false;           ///< of some packets only the time of decoding is known
    bool is_reordered = false;         ///< the times do not ascend from packet to packet
    bool is_crossed = false;           ///< a frame is shown on the wrong side of a key frame
    bool is_behind_later = false;      ///< a frame that is shown after the last key frame came
    bool is_behind_reordered = false;  ///< the last frame is shown before an earlier one
    bool is_behind_key = false;        ///< no packet that trails the last key frame came by now
    int num_reordered = 0;             ///< how often one that is not followed such a frame
    std::size_t key = 0;               ///< the last key packet
    PacketHeaders::Needed needed{};    ///< of those behind it
    std::optional<std::size_t> open_key = {};     ///< it, if H.264 forgets nothing before it
    std::optional<std::size_t> open_before = {};  ///< the same of the one before
    std::vector<std::size_t> unsure_keys = {};    ///< times do not tell the place of their frames
    std::int64_t key_pts = std::numeric_limits<std::int64_t>::min();  ///< of the last key frame
    std::int64_t last_pts = std::numeric_limits<std::int64_t>::min();
    std::int64_t last_duration = 0;

    /// Takes note of a frame's place by time among the key frames.
    void see_time(std::int64_t pts, bool is_key) noexcept;
    /// Takes note of the order that a packet's own header tells.
    void see_order(bool is_reordered_header) noexcept;
    /// Whether frames are predicted from later ones, by their headers. Once may be damage.
    bool codec_reorders() const noexcept { return num_reordered >= 2; }
    /// Whether the next packet's own header is to be compared with its time.
    bool is_curious(std::size_t num_packets) const noexcept;
  };

  void read_packets(Demuxer& demuxer, unsigned stream, std::uint64_t most, Pass& pass);
  void add(const AVPacket& packet, bool is_shown, Pass& pass);
  void compare_with_key(Header& header, Pass& pass);
  void sort_frames();
  bool is_doubtful(const Pass& pass) const;
  void number_packets();
  void find_end(std::int64_t last_duration);

  std::vector<Packet> packets_;         ///< by packet number
  std::vector<std::uint32_t> frames_;   ///< packet numbers by frame number
  std::vector<std::int64_t> times_;     ///< by frame number
  std::vector<std::uint32_t> by_time_;  ///< packet numbers by (pts, pos)
  std::int64_t end_pts_ = 0;
  bool needs_decoding_ = false;
  bool begins_with_key_ = true;
  bool is_mixed_ = false;
  bool is_order_sure_ = true;
};

}  // namespace shardwise::detail
