#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// A video packet's properties by its own header, independent of the container.
struct PacketHeader {
  bool is_key = true;         ///< decoding may begin here
  bool has_no_frame = false;  ///< a decoder returns no frame for it
  bool is_field = false;      ///< it is one of two fields of a frame
  bool is_reordered = false;  ///< its frame is shown before that of an earlier packet
  /// For packets directly after a key frame: true if the frame is shown before it; nothing if
  /// unknown.
  std::optional<bool> leads = false;
  // H.264, for consecutive packets:
  bool is_behind_gap = false;      ///< a frame after the last key frame is missing
  bool key_is_behind_gap = false;  ///< a frame directly before that key frame is missing
};

/// Reads the headers of packets with libav's parsers, which decode nothing. For other codecs it
/// assumes one frame per packet, in order, and the container's key frames.
class PacketHeaders {
 public:
  /// Lifetime: `parameters` must outlive it.
  explicit PacketHeaders(const AVCodecParameters& parameters);
  ~PacketHeaders();
  PacketHeaders(const PacketHeaders&) = delete;
  PacketHeaders& operator=(const PacketHeaders&) = delete;

  /// Reads one packet's header. For the order, the packets must be consecutive.
  PacketHeader look_at(std::string_view packet, bool is_called_key);
  /// The headers needed to find out which packets after a key packet lead.
  enum class Needed : std::uint8_t {
    kNothing,  ///< no headers: H.264 resets its decoder, so no packet leads
    kTheirs,   ///< their own headers
    kAll       ///< theirs and the key packet's
  };
  Needed needed_behind(std::string_view key_packet) const noexcept;
  /// True if a key packet's encoder or kind of picture differs from the first one's. A decoder
  /// keeps such settings, or restarts and loses frames that it holds.
  bool is_of_another(std::string_view key_packet);

 private:
  bool is_key() const noexcept;
  void see_place(std::int64_t place, bool is_key, PacketHeader& header) noexcept;

  const AVCodecParameters* const parameters_;
  const AVCodecID codec_id_;
  LibavPtr<AVCodecContext> context_;
  AVCodecParserContext* parser_ = nullptr;
  int last_shown_ = INT_MIN;  ///< H.264, HEVC: the highest position in presentation order
  // H.264, positions in presentation order:
  std::int64_t key_place_ = INT_MIN;       ///< the last key packet's
  std::int64_t top_place_ = INT_MIN;       ///< the highest since that key packet
  std::int64_t top_before_key_ = INT_MIN;  ///< the highest between the two last key packets
  std::int64_t last_place_ = INT_MIN;      ///< the last packet's
  std::int64_t step_ = INT_MAX;            ///< distance between frames
  std::int64_t num_leading_ = 0;           ///< frames shown before the key frame
  std::int64_t num_behind_key_ = 0;        ///< all other frames, including the key frame
  std::optional<std::string> first_;       ///< the first key packet's settings, see is_of_another()
};

}  // namespace shardwise::detail
