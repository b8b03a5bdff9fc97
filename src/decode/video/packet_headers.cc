#include "decode/video/packet_headers.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string_view>

namespace shardwise::detail {
namespace {

constexpr std::string_view kStartCode("\0\0\1", 3);

/// True if an MPEG-4 part 2 packet means "same as the last frame". At most 4 bytes follow the start
/// code in such a packet, because its picture ends after the time. In all other packets, quantiser
/// and macroblocks follow.
bool is_not_coded_mpeg4(std::string_view packet) noexcept {
  constexpr std::string_view kPicture("\0\0\1\xB6", 4);
  packet.remove_prefix(packet.size() - std::min(packet.size(), kPicture.size() + 4));
  return packet.find(kPicture) != packet.npos;
}

/// Properties of the units in a packet of H.264 or HEVC.
struct Units {
  int num_slices = 0;
  bool has_instant_key = false;  ///< H.264: a slice belongs to a picture that resets the decoder
  int num_pictures = 0;          ///< H.264: number of frames or fields that begin in the packet
  /// HEVC: the picture is shown before the key frame that precedes it in the file.
  bool is_leading = false;
  /// All units are slices or accompany slices, and the last unit is complete.
  bool is_all_known = true;
};

void add_unit(MediaView unit, AVCodecID codec, Units& units) {
  if (unit.empty()) return;
  const int first = static_cast<unsigned char>(unit[0]);
  const bool is_hevc = codec == AV_CODEC_ID_HEVC;
  // The highest bit of the first byte is always 0.
  const int type = is_hevc ? first >> 1 : first & 0x9F;
  const bool is_slice = is_hevc ? type < 32 : type >= 1 && type <= 5;
  // Headers, their extensions, delimiters and filler accompany slices.
  const bool goes_with_slice = is_hevc ? type >= 32 && type <= 40 : type >= 6 && type <= 12;
  units.num_slices += is_slice ? 1 : 0;
  if (is_hevc && type >= 6 && type <= 9) units.is_leading = true;
  if (!is_hevc && type == 5) units.has_instant_key = true;
  if (!is_slice && !goes_with_slice) units.is_all_known = false;
  // A slice whose first macroblock has the number 0 begins a picture.
  const bool is_whole_slice = type == 1 || type == 5;
  if (is_whole_slice && unit.size() > 1 && (static_cast<unsigned char>(unit[1]) & 0x80) != 0) {
    ++units.num_pictures;
  }
}

/// Returns the units of a packet. Reads the first two bytes of each unit.
/// @param is_enough  called after each unit; true means that later units are of no interest.
template <class IsEnough>
Units units_of(MediaView packet, const AVCodecParameters& parameters, const IsEnough& is_enough) {
  Units units;
  const AVCodecID codec = parameters.codec_id;
  const int width_at = codec == AV_CODEC_ID_HEVC ? 21 : 4;
  // In this case, start codes separate the units.
  if (parameters.extradata_size <= width_at || parameters.extradata[0] != 1) {
    for (std::size_t at = packet.find(kStartCode); at != MediaView::npos;
         at = packet.find(kStartCode, at + 1)) {
      add_unit(packet.substr(at + kStartCode.size()), codec, units);
      if (is_enough(units)) break;
    }
    return units;
  }
  const std::size_t width = (parameters.extradata[width_at] & 3u) + 1;
  while (packet.size() > width) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < width; ++i) {
      size = size << 8 | static_cast<unsigned char>(packet[i]);
    }
    packet.remove_prefix(width);
    add_unit(packet, codec, units);
    if (is_enough(units)) return units;
    if (size > packet.size()) units.is_all_known = false;
    packet.remove_prefix(std::min(size, packet.size()));
  }
  if (!packet.empty()) units.is_all_known = false;
  return units;
}

/// Returns the parts of the headers before the first picture that a decoder keeps for later
/// pictures. For MPEG-1 and MPEG-2 these are the size and shape of pixels, the rate, and
/// interlacing. For MPEG-4 this is the name of the encoder.
std::string told_before_picture(MediaView packet, AVCodecID codec) {
  const bool is_mpeg4 = codec == AV_CODEC_ID_MPEG4;
  std::string told;
  for (std::size_t at = packet.find(kStartCode); at != MediaView::npos;) {
    packet.remove_prefix(at + kStartCode.size());
    const char type = packet.empty() ? '\1' : packet[0];  // a slice, which is not of interest
    if (type == (is_mpeg4 ? '\xB6' : '\0')) break;
    at = packet.find(kStartCode);
    if (is_mpeg4 && type == '\xB2') told += packet.substr(0, at).view();
    if (!is_mpeg4 && type == '\xB3') told += packet.substr(0, 5).view();
    const bool is_extension = type == '\xB5' && packet.size() > 1;
    if (!is_mpeg4 && is_extension && packet[1] >> 4 == 1) told += packet.substr(0, 3).view();
  }
  return told;
}

bool has_order(AVCodecID codec) noexcept {
  return codec == AV_CODEC_ID_H264 || codec == AV_CODEC_ID_HEVC;
}

bool has_types(AVCodecID codec) noexcept {
  return codec == AV_CODEC_ID_MPEG4 || codec == AV_CODEC_ID_MPEG1VIDEO ||
         codec == AV_CODEC_ID_MPEG2VIDEO;
}

bool has_flag(AVCodecID codec) noexcept {
  return codec == AV_CODEC_ID_VP8 || codec == AV_CODEC_ID_VP9 || codec == AV_CODEC_ID_AV1;
}

}  // namespace

PacketHeaders::PacketHeaders(const AVCodecParameters& parameters)
    : parameters_(&parameters),
      codec_id_(parameters.codec_id),
      context_(avcodec_alloc_context3(nullptr)) {
  if (!context_ || avcodec_parameters_to_context(context_.get(), &parameters) < 0) {
    throw std::bad_alloc();
  }
  if (!has_order(codec_id_) && !has_types(codec_id_) && !has_flag(codec_id_)) return;
  parser_ = av_parser_init(codec_id_);
  if (parser_ != nullptr) parser_->flags |= PARSER_FLAG_COMPLETE_FRAMES;
}

PacketHeaders::~PacketHeaders() { av_parser_close(parser_); }

bool PacketHeaders::is_key() const noexcept {
  if (has_types(codec_id_)) return parser_->pict_type == AV_PICTURE_TYPE_I;
  if (has_flag(codec_id_)) return parser_->key_frame != 0;
  return parser_->key_frame == 1 && parser_->pict_type == AV_PICTURE_TYPE_I;
}

/// Updates the detected gaps with a frame's position. The frame with the highest position so far is
/// not predicted from a later frame, and follows all lower ones in the file.
void PacketHeaders::see_place(std::int64_t place, bool is_key, PacketHeader& header) noexcept {
  if (place != last_place_) step_ = std::min(step_, std::abs(place - last_place_));
  last_place_ = place;
  const bool is_highest = place > top_place_;
  const bool may_lead = parser_->pict_type == AV_PICTURE_TYPE_B;
  if (is_key || is_highest) {
    header.is_behind_gap =
        (may_lead && !is_key) || num_behind_key_ < (top_place_ - key_place_) / step_ + 1;
    header.key_is_behind_gap = num_leading_ < (key_place_ - top_before_key_) / step_ - 1;
  }
  if (is_key) {
    top_before_key_ = top_place_;
    key_place_ = place;
    num_behind_key_ = num_leading_ = 0;
  }
  if (is_key || is_highest) top_place_ = place;
  ++(place < key_place_ ? num_leading_ : num_behind_key_);
  const bool is_known = place != INT_MIN && key_place_ != INT_MIN;
  if (may_lead) header.leads = is_known ? std::optional<bool>(place < key_place_) : std::nullopt;
}

PacketHeader PacketHeaders::look_at(std::string_view packet, bool is_called_key) {
  PacketHeader header;
  header.has_no_frame = packet.empty();
  if (parser_ == nullptr || packet.empty()) return header;
  // These values stay if the parser finds no picture.
  parser_->output_picture_number = INT_MIN;
  parser_->key_frame = -1;
  std::uint8_t* out = nullptr;
  int out_size = 0;
  av_parser_parse2(parser_, context_.get(), &out, &out_size,
                   reinterpret_cast<const std::uint8_t*>(packet.data()),
                   static_cast<int>(packet.size()), AV_NOPTS_VALUE, AV_NOPTS_VALUE, -1);
  header.is_key = is_key();
  if (codec_id_ == AV_CODEC_ID_MPEG4) header.has_no_frame = is_not_coded_mpeg4(packet);
  header.leads = parser_->pict_type == AV_PICTURE_TYPE_B;
  if (has_types(codec_id_)) header.is_reordered = *header.leads;
  if (!has_order(codec_id_)) return header;
  const Units units = units_of(packet, *parameters_, [](const Units&) { return false; });
  header.has_no_frame = units.is_all_known && units.num_slices == 0;
  const bool is_field = parser_->picture_structure == AV_PICTURE_STRUCTURE_TOP_FIELD ||
                        parser_->picture_structure == AV_PICTURE_STRUCTURE_BOTTOM_FIELD;
  header.is_field = codec_id_ == AV_CODEC_ID_H264 && is_field && units.num_pictures < 2;
  const int place = parser_->output_picture_number;
  if (codec_id_ == AV_CODEC_ID_HEVC) header.leads = units.is_leading;
  if (codec_id_ == AV_CODEC_ID_H264) see_place(place, is_called_key, header);
  // A damaged header does not say whether this is a key frame, so assume that it is.
  if (units.has_instant_key || place == INT_MIN) header.is_key = true;
  header.is_reordered = place != INT_MIN && place < last_shown_ && parser_->key_frame != 1;
  last_shown_ = header.is_reordered ? last_shown_ : place;
  return header;
}

PacketHeaders::Needed PacketHeaders::needed_behind(MediaView key_packet) const {
  if (codec_id_ != AV_CODEC_ID_H264) return Needed::kTheirs;
  const auto is_instant = [](const Units& units) { return units.has_instant_key; };
  return is_instant(units_of(key_packet, *parameters_, is_instant)) ? Needed::kNothing
                                                                    : Needed::kAll;
}

std::optional<bool> PacketHeaders::find_leads(MediaView packet) const {
  if (codec_id_ != AV_CODEC_ID_HEVC || parser_ == nullptr) return std::nullopt;
  // All slices of a picture are of one type.
  const auto has_slice = [](const Units& units) { return units.num_slices > 0; };
  return units_of(packet, *parameters_, has_slice).is_leading;
}

bool PacketHeaders::is_of_another(MediaView key_packet) {
  if (!has_types(codec_id_)) return false;
  std::string told = told_before_picture(key_packet, codec_id_);
  if (told.empty() && parameters_->extradata_size > 0) {
    const auto* data = reinterpret_cast<const char*>(parameters_->extradata);
    const auto size = static_cast<std::size_t>(parameters_->extradata_size);
    told = told_before_picture(std::string_view(data, size), codec_id_);
  }
  if (!first_) first_ = told;
  return told != *first_;
}

}  // namespace shardwise::detail
