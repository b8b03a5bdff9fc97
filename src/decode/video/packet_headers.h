#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// What a packet of a video says of itself, whatever the container says of it.
struct PacketHeader {
  bool is_key = true;         ///< decoding may begin here
  bool has_no_frame = false;  ///< a decoder gives none for it
  bool is_field = false;      ///< it is one of two fields of a frame
  bool is_reordered = false;  ///< its frame is shown before that of an earlier packet
  /// Directly behind a key frame: whether its frame is shown before that; nothing: not known.
  std::optional<bool> leads = false;
  // H.264, of packets that follow each other:
  bool is_behind_gap = false;      ///< a frame behind the last key frame is missing
  bool key_is_behind_gap = false;  ///< one directly before that
};

/// Reads the headers of packets by libav's parsers, which decode nothing. A codec whose headers
/// are not read has packets of one frame each, in order, and key frames where the container has.
class PacketHeaders {
 public:
  /// `parameters` must outlive it.
  explicit PacketHeaders(const AVCodecParameters& parameters);
  ~PacketHeaders();
  PacketHeaders(const PacketHeaders&) = delete;
  PacketHeaders& operator=(const PacketHeaders&) = delete;

  /// The order is told of packets that follow each other.
  PacketHeader look_at(std::string_view packet, bool is_called_key);
  /// What must be looked at to tell whether the packets behind a key packet lead.
  enum class Needed : std::uint8_t {
    kNothing,  ///< none of them does: H.264 begins anew
    kTheirs,   ///< their own headers
    kAll       ///< the key packet's, too
  };
  Needed needed_behind(std::string_view key_packet) const noexcept;
  /// Whether a key packet says of its encoder, or of the kind of its pictures, what the first one
  /// does not. A decoder keeps what it was told, or begins anew and loses frames that it holds.
  bool is_of_another(std::string_view key_packet);

 private:
  bool is_key() const noexcept;
  void see_place(std::int64_t place, bool is_key, PacketHeader& header) noexcept;

  const AVCodecParameters* const parameters_;
  const AVCodecID codec_id_;
  LibavPtr<AVCodecContext> context_;
  AVCodecParserContext* parser_ = nullptr;
  int last_shown_ = INT_MIN;  ///< H.264, HEVC: the highest place in the order of presentation
  // H.264, in the order of presentation:
  std::int64_t key_place_ = INT_MIN;       ///< of the last key packet
  std::int64_t top_place_ = INT_MIN;       ///< the highest one from there on
  std::int64_t top_before_key_ = INT_MIN;  ///< and from the key packet before on
  std::int64_t last_place_ = INT_MIN;      ///< of the last packet
  std::int64_t step_ = INT_MAX;            ///< from one frame to the next
  std::int64_t num_leading_ = 0;           ///< frames before the key frame
  std::int64_t num_behind_key_ = 0;        ///< the others, with itself
  std::optional<std::string> first_;       ///< see is_of_another()
};

}  // namespace shardwise::detail
