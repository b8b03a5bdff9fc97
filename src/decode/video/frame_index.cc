#include "decode/video/frame_index.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "decode/decode_failure.h"

namespace shardwise::detail {
namespace {

/// Larger times are damaged, and their sums could overflow.
constexpr std::int64_t kMaxTime = std::int64_t{1} << 60;
/// Number of packets whose headers are read to determine whether the times are presentation times.
/// An encoder that reorders frames does so within the first few packets.
constexpr std::size_t kMaxProbed = 16;
/// Number of packets after a key frame whose headers are prefetched. More of them are rarely shown
/// before it.
constexpr std::size_t kMaxLeading = 8;
/// Number of frames after a key frame that is examined for missing frames. In H.264, a decoder may
/// replace a missing frame by one from before the key frame, because it keeps up to 16 reference
/// frames.
constexpr std::size_t kMaxAfterKey = 32;

/// True for a VP8 frame that is used only for prediction; a bit of its header marks such frames.
bool is_hidden_vp8(const AVPacket& packet) noexcept {
  return packet.size > 0 && (packet.data[0] & 0x10) == 0;
}

/// True if an edit list excludes the frame of this packet.
/// Errors: DecodeFailure for MPEG-1. libav splits its packets differently, and so moves the mark to
///   the previous frame. FFmpeg's program then shows an excluded frame, and omits another.
bool is_left_out(const AVPacket& packet, AVCodecID codec) {
  if ((packet.flags & AV_PKT_FLAG_DISCARD) == 0) return false;
  if (codec != AV_CODEC_ID_MPEG1VIDEO) return true;
  throw DecodeFailure(
      "the edit list leaves out frames of MPEG-1, which FFmpeg handles differently");
}

}  // namespace

bool FrameIndex::Pass::is_curious(std::size_t num_packets) const noexcept {
  if (num_packets == 0) return true;
  if (num_packets >= kMaxProbed || reordering == Reordering::kNone) return false;
  return !is_reordered || reordering == Reordering::kUnlikely;
}

/// Checks by the time whether a frame after a key frame is also shown after it. Frames directly
/// after the key frame may be shown before it.
void FrameIndex::Pass::see_time(std::int64_t pts, bool is_key) noexcept {
  if (is_key) {
    is_crossed = is_crossed || pts < last_pts;
    is_behind_later = false;
    key_pts = pts;
  } else if (pts > key_pts) {
    is_behind_later = true;
  } else if (pts < key_pts && is_behind_later) {
    is_crossed = true;
  }
}

void FrameIndex::Pass::see_order(bool is_reordered_header) noexcept {
  if (is_behind_reordered && !is_reordered_header) ++num_reordered;
  is_behind_reordered = is_reordered_header;
}

/// The header of a packet. Its data is read only when it is needed.
class FrameIndex::Header {
 public:
  Header(const Demuxer& demuxer, PacketHeaders& headers, AVPacket& packet)
      : demuxer_(demuxer), headers_(headers), packet_(packet) {}

  const PacketHeader& get() {
    if (!header_) {
      header_ = headers_.look_at(demuxer_.data_of(packet_), (packet_.flags & AV_PKT_FLAG_KEY) != 0);
    }
    return *header_;
  }
  std::optional<bool> leads() {
    const auto found = header_ ? std::nullopt : headers_.find_leads(demuxer_.view_of(packet_));
    return found ? found : get().leads;
  }
  PacketHeaders::Needed needed_behind() const {
    return headers_.needed_behind(demuxer_.view_of(packet_));
  }
  bool is_of_another() const { return headers_.is_of_another(demuxer_.view_of(packet_)); }

 private:
  const Demuxer& demuxer_;
  PacketHeaders& headers_;
  AVPacket& packet_;
  std::optional<PacketHeader> header_;
};

FrameIndex::FrameIndex(Demuxer& demuxer, unsigned stream, Reordering reordering,
                       std::uint64_t max_frames) {
  const LibavMessages messages;
  Pass pass{.reordering = reordering};
  read_packets(demuxer, stream, std::min<std::uint64_t>(max_frames, kNoFrame), pass);
  sort_frames();
  needs_decoding_ = is_doubtful(pass);
  if (!needs_decoding_) {
    for (const std::size_t key : pass.unsure_keys) packets_[key].is_key = false;
    number_packets();
  }
  is_order_sure_ = pass.is_reordered || reordering != Reordering::kPossible;
  // libav may not know the duration of a stream's only frame.
  const bool is_alone = num_frames() == 1 && pass.last_duration <= 0;
  find_end(is_alone ? demuxer.stream(stream).duration : pass.last_duration);
}

/// Reads all packets. A packet's data begins with the codec's header of its frame. Data is read
/// only if this header is needed, or if the demuxer cannot skip the data, as in small packets.
void FrameIndex::read_packets(Demuxer& demuxer, unsigned stream, std::uint64_t most, Pass& pass) {
  const AVCodecID codec = demuxer.stream(stream).codecpar->codec_id;
  const bool is_vp8 = codec == AV_CODEC_ID_VP8;
  PacketHeaders headers(*demuxer.stream(stream).codecpar);
  const auto packet = make_packet();
  const bool needs_keys = pass.reordering != Reordering::kNone;
  const std::size_t packets_behind_key = codec == AV_CODEC_ID_HEVC ? kMaxLeading : 0;
  std::size_t next_prefetch = kMaxProbed;  // the first packets are read in sequence
  for (;;) {
    if (packets_.size() == next_prefetch) {
      next_prefetch = demuxer.prefetch_headers(next_prefetch, {needs_keys, packets_behind_key});
    }
    const bool is_curious = pass.is_curious(packets_.size());
    demuxer.read_data(is_vp8 || is_curious);
    if (!demuxer.next(*packet)) break;
    if (packets_.size() == most) {
      throw DecodeFailure("the video has more frames than the limit of " + human_count(most));
    }
    Header header(demuxer, headers, *packet);
    if (is_curious || packet->size <= Demuxer::kSmall) {
      pass.is_odd = pass.is_odd || header.get().has_no_frame || header.get().is_field;
    }
    if (is_curious) pass.see_order(header.get().is_reordered);
    if (packets_.empty()) {
      begins_with_key_ = header.get().is_key && (packet->flags & AV_PKT_FLAG_KEY) != 0;
    }
    const bool is_shown = !is_left_out(*packet, codec) && !(is_vp8 && is_hidden_vp8(*packet));
    add(*packet, is_shown, pass);
    if (pass.reordering != Reordering::kNone) compare_with_key(header, pass);
    av_packet_unref(packet.get());
  }
  demuxer.read_data(true);
}

/// Compares the last packet's time with its header: both say whether its frame is shown before the
/// frame of the latest key packet.
void FrameIndex::compare_with_key(Header& header, Pass& pass) {
  Packet& packet = packets_.back();
  using Needed = PacketHeaders::Needed;
  const std::size_t last = packets_.size() - 1;
  const auto is_near = [&](const std::optional<std::size_t>& key) {
    return key && last - *key <= kMaxAfterKey;
  };
  if (is_near(pass.open_key) && header.get().is_behind_gap) packets_[*pass.open_key].is_key = false;
  if (is_near(pass.open_before) && header.get().key_is_behind_gap) {
    packets_[*pass.open_before].is_key = false;
  }
  if (packet.is_key) {
    pass.key = last;
    pass.is_behind_key = true;
    pass.needed = header.needed_behind();
    pass.open_before = std::exchange(pass.open_key, std::nullopt);
    if (pass.needed == Needed::kAll) {
      pass.open_key = last;
      header.get();
    }
    is_mixed_ = is_mixed_ || header.is_of_another();
    return;
  }
  if (!pass.is_behind_key) return;
  const bool leads_by_time = packet.pts < packets_[pass.key].pts;
  const std::optional<bool> leads =
      pass.needed == Needed::kNothing ? std::optional<bool>(false) : header.leads();
  if (leads_by_time && packet.is_shown && !leads.value_or(true)) pass.is_crossed = true;
  // A decoder that starts at the key packet may omit this frame. A decoder that started earlier
  // shows it first.
  if (!leads_by_time && leads.value_or(false)) pass.unsure_keys.push_back(pass.key);
  pass.is_behind_key = leads_by_time;
}

void FrameIndex::add(const AVPacket& packet, bool is_shown, Pass& pass) {
  const std::int64_t pts = time_of(packet);
  if (pts == AV_NOPTS_VALUE || pts > kMaxTime || pts < -kMaxTime) {
    throw DecodeFailure("a frame has no time stamp");
  }
  if (packet.pts == AV_NOPTS_VALUE) pass.has_no_pts = true;
  packets_.push_back({pts, packet.pos, kNoFrame, (packet.flags & AV_PKT_FLAG_KEY) != 0, is_shown});
  if (!is_shown) return;
  pass.see_time(pts, packets_.back().is_key);
  if (pts < pass.last_pts) {
    pass.is_reordered = true;
    return;
  }
  pass.last_pts = pts;
  pass.last_duration = packet.duration;
}

/// Sorts frames by time. Frames with equal times stay in file order.
void FrameIndex::sort_frames() {
  by_time_.resize(packets_.size());
  std::iota(by_time_.begin(), by_time_.end(), 0);
  const auto place = [this](std::uint32_t i) {
    return std::make_tuple(packets_[i].pts, packets_[i].pos, i);
  };
  std::sort(by_time_.begin(), by_time_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return place(a) < place(b); });
  for (const std::uint32_t i : by_time_) {
    if (packets_[i].is_shown) frames_.push_back(i);
  }
  if (frames_.empty()) throw DecodeFailure("the video has no frames");
  std::stable_sort(frames_.begin(), frames_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return std::make_pair(packets_[a].pts, a) < std::make_pair(packets_[b].pts, b);
  });
  times_.reserve(frames_.size());
  for (const std::uint32_t i : frames_) times_.push_back(packets_[i].pts);
}

/// True if a decoder may return other frames than the times indicate, or in another order.
bool FrameIndex::is_doubtful(const Pass& pass) const {
  if (pass.is_odd || !begins_with_key_ || is_mixed_) return true;
  if (pass.has_no_pts && pass.reordering != Reordering::kNone) return true;
  if (!pass.is_reordered) return pass.codec_reorders();
  if (pass.is_crossed || pass.reordering == Reordering::kNone) return true;
  // Neither the stream's header nor the packets' headers indicate reordering.
  if (pass.reordering == Reordering::kUnlikely && pass.num_reordered == 0) return true;
  // A frame shown before the first key frame depends on frames that are not in the file.
  if (times_[0] < packets_[0].pts) return true;
  return std::ranges::adjacent_find(times_) != times_.end();
}

/// Assigns the frames' numbers to their packets. Clears the mark of a key packet that does not
/// separate earlier frames from later ones.
void FrameIndex::number_packets() {
  for (Packet& packet : packets_) {
    packet.frame = kNoFrame;
    packet.is_key = packet.is_key && !is_mixed_;
  }
  for (std::uint32_t i = 0; i < frames_.size(); ++i) packets_[frames_[i]].frame = i;
  std::int64_t last = -1;
  for (Packet& packet : packets_) {
    if (packet.frame == kNoFrame) continue;
    if (packet.frame < last) packet.is_key = false;
    last = std::max<std::int64_t>(last, packet.frame);
  }
}

void FrameIndex::number(const std::vector<std::uint32_t>& packets) {
  if (packets.empty()) throw DecodeFailure("the video has no frames");
  std::vector<std::int64_t> times;
  times.reserve(packets.size());
  for (const std::uint32_t i : packets) times.push_back(packets_[i].pts);
  if (!std::ranges::is_sorted(times)) {
    // These are decoding times: assign them to the frames in ascending order.
    const bool ascend = std::ranges::is_sorted(packets_, {}, &Packet::pts);
    if (!ascend) throw DecodeFailure("the time stamps of the frames do not ascend");
    std::ranges::sort(times);
  }
  const std::int64_t last_duration = end_pts_ - times_.back();
  frames_ = packets;
  times_ = std::move(times);
  number_packets();
  find_end(last_duration);
  needs_decoding_ = false;
  is_order_sure_ = true;
}

void FrameIndex::find_end(std::int64_t last_duration) {
  const std::int64_t last = times_.back();
  if (last_duration <= 0 || last_duration > kMaxTime) {
    // Use the average duration of the other frames.
    last_duration = num_frames() > 1 ? (last - times_[0]) / (num_frames() - 1) : 0;
  }
  end_pts_ = last + last_duration;
}

std::size_t FrameIndex::entry_of(std::int64_t frame) const {
  const std::size_t target = packet_of(frame);
  // If the order of frames is uncertain, decode the previous frame too, because two consecutive
  // frames show the order.
  const std::int64_t last = is_order_sure_ ? frame : frame - 1;
  for (std::size_t i = target + 1; i-- > 0;) {
    const Packet& packet = packets_[i];
    if (!packet.is_key) continue;
    if (packet.frame == kNoFrame ? packet.pts <= pts(frame) : packet.frame <= last) return i;
  }
  return 0;
}

std::size_t FrameIndex::key_before(std::size_t packet) const {
  for (std::size_t i = packet; i-- > 0;) {
    if (packets_[i].is_key) return i;
  }
  return 0;
}

std::optional<std::size_t> FrameIndex::find(const AVPacket& packet) const {
  const auto wanted = std::make_pair(time_of(packet), packet.pos);
  const auto place = [this](std::uint32_t i) {
    return std::make_pair(packets_[i].pts, packets_[i].pos);
  };
  const auto found = std::ranges::lower_bound(by_time_, wanted, {}, place);
  if (found == by_time_.end() || place(*found) != wanted) return std::nullopt;
  const auto next = found + 1;
  if (next != by_time_.end() && place(*next) == wanted) return std::nullopt;
  return *found;
}

}  // namespace shardwise::detail
