#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "decode/video/libav.h"
#include "decode/video/media_view.h"

namespace shardwise::detail {

/// A video packet's properties according to its own header, independent of the container.
struct PacketHeader {
  bool is_key = true;         ///< decoding may begin at this packet
  bool has_no_frame = false;  ///< a decoder returns no frame for this packet
  bool is_field = false;      ///< the packet has one of the two fields of a frame
  bool is_reordered = false;  ///< the packet's frame is shown before the frame of an earlier packet
  /// For packets directly after a key frame: whether the frame is shown before the key frame;
  /// nullopt if that is unknown.
  std::optional<bool> leads = false;
  // For H.264 and consecutive packets:
  bool is_behind_gap = false;      ///< a frame after the last key frame is missing
  bool key_is_behind_gap = false;  ///< a frame directly before the last key frame is missing
};

/// Reads the headers of packets with libav's parsers, which decode nothing. If libav has no parser
/// for the codec, assumes one frame per packet, in order, and the container's key frames.
class PacketHeaders {
 public:
  /// Lifetime: `parameters` must outlive this object.
  explicit PacketHeaders(const AVCodecParameters& parameters);
  ~PacketHeaders();
  PacketHeaders(const PacketHeaders&) = delete;
  PacketHeaders& operator=(const PacketHeaders&) = delete;

  /// Reads one packet's header. Packets must be passed consecutively if their order matters.
  PacketHeader look_at(std::string_view packet, bool is_called_key);
  /// Which headers must be read to determine which packets after a key packet are leading, i.e. are
  /// shown before its frame.
  enum class Needed : std::uint8_t {
    kNothing,  ///< no headers: H.264 resets its decoder there, so no packet is leading
    kTheirs,   ///< the headers of the packets after the key packet
    kAll       ///< those headers, and the key packet's header
  };
  Needed needed_behind(MediaView key_packet) const;
  /// Returns PacketHeader::leads, and reads no more of the packet than this needs; nullopt if
  /// only look_at() determines it.
  std::optional<bool> find_leads(MediaView packet) const;
  /// True if the encoder or kind of picture of this key packet differs from the first key packet's.
  /// A decoder may keep the old settings, or restart and lose frames that it holds.
  bool is_of_another(MediaView key_packet);

 private:
  bool is_key() const noexcept;
  void see_place(std::int64_t place, bool is_key, PacketHeader& header) noexcept;

  const AVCodecParameters* const parameters_;
  const AVCodecID codec_id_;
  LibavPtr<AVCodecContext> context_;
  AVCodecParserContext* parser_ = nullptr;
  int last_shown_ = INT_MIN;  ///< H.264, HEVC: highest position in presentation order so far
  // For H.264, positions in presentation order:
  std::int64_t key_place_ = INT_MIN;       ///< position of the last key packet
  std::int64_t top_place_ = INT_MIN;       ///< highest position since the last key packet
  std::int64_t top_before_key_ = INT_MIN;  ///< highest position between the last two key packets
  std::int64_t last_place_ = INT_MIN;      ///< position of the last packet
  std::int64_t step_ = INT_MAX;            ///< distance between neighbouring frames
  std::int64_t num_leading_ = 0;           ///< number of frames shown before the last key frame
  /// Number of frames from the last key frame on that are not leading frames.
  std::int64_t num_behind_key_ = 0;
  /// Settings of the first key packet, see is_of_another().
  std::optional<std::string> first_;
};

}  // namespace shardwise::detail
