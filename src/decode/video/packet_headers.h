#pragma once

#include <climits>
#include <cstddef>
#include <memory>

#include "decode/video/libav.h"

namespace shardwise::detail {

/// What a packet of a video says of itself, whatever the container says of it.
struct PacketHeader {
  bool is_key = true;         ///< decoding may begin here
  bool has_no_frame = false;  ///< a decoder gives none for it
  bool is_field = false;      ///< it is one of two fields of a frame
  bool is_reordered = false;  ///< its frame is shown before that of an earlier packet
  bool may_lead = false;      ///< behind a key frame, its frame may be shown before that
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
  PacketHeader look_at(const AVPacket& packet);

 private:
  bool is_key() const noexcept;

  const AVCodecParameters* const parameters_;
  const AVCodecID codec_id_;
  LibavPtr<AVCodecContext> context_;
  AVCodecParserContext* parser_ = nullptr;
  int last_shown_ = INT_MIN;  ///< H.264, HEVC: the highest place in the order of presentation
};

}  // namespace shardwise::detail
