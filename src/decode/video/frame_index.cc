#include "decode/video/frame_index.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "decode/decode_failure.h"

namespace shardwise::detail {
namespace {

/// Times beyond this are damage: sums of them could overflow.
constexpr std::int64_t kMostTime = std::int64_t{1} << 60;

/// VP8 has frames that are only there to predict others from; a bit of their header says so.
bool is_hidden_vp8(const AVPacket& packet) noexcept {
  return packet.size > 0 && (packet.data[0] & 0x10) == 0;
}

}  // namespace

FrameIndex::FrameIndex(Demuxer& demuxer, unsigned stream, std::uint64_t max_frames) {
  const LibavMessages messages;
  const bool is_vp8 = demuxer.stream(stream).codecpar->codec_id == AV_CODEC_ID_VP8;
  const std::uint64_t most =
      std::min<std::uint64_t>(max_frames, std::numeric_limits<std::uint32_t>::max());
  demuxer.read_data(is_vp8);
  std::int64_t last_duration = 0;
  std::int64_t last_pts = std::numeric_limits<std::int64_t>::min();
  const auto packet = make_packet();
  while (demuxer.next(*packet)) {
    const std::int64_t pts = time_of(*packet);
    const bool is_shown =
        (packet->flags & AV_PKT_FLAG_DISCARD) == 0 && !(is_vp8 && is_hidden_vp8(*packet));
    if (pts == AV_NOPTS_VALUE || pts > kMostTime || pts < -kMostTime) {
      throw DecodeFailure("a frame has no time");
    }
    if (packets_.size() == most) {
      throw DecodeFailure("it has more frames than the limit of " + std::to_string(most));
    }
    packets_.push_back({pts, packet->pos, (packet->flags & AV_PKT_FLAG_KEY) != 0, is_shown});
    if (is_shown && pts >= last_pts) {
      last_pts = pts;
      last_duration = packet->duration;
    }
    av_packet_unref(packet.get());
  }
  demuxer.read_data(true);
  sort_frames();
  if (frames_.empty()) throw DecodeFailure("it has no frames");
  find_end(last_duration);
}

void FrameIndex::sort_frames() {
  by_time_.resize(packets_.size());
  std::iota(by_time_.begin(), by_time_.end(), 0);
  const auto place = [this](std::uint32_t i) {
    return std::make_tuple(packets_[i].pts, packets_[i].pos, i);
  };
  std::sort(by_time_.begin(), by_time_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return place(a) < place(b); });
  for (const std::uint32_t i : by_time_) {
    if (!packets_[i].is_shown) continue;
    // Two fields of one frame may come in packets of their own.
    if (!frames_.empty() && packets_[frames_.back()].pts == packets_[i].pts) continue;
    frames_.push_back(i);
  }
}

void FrameIndex::find_end(std::int64_t last_duration) {
  const std::int64_t last = pts(num_frames() - 1);
  if (last_duration <= 0 || last_duration > kMostTime) {
    // As long as the others are on average.
    last_duration = num_frames() > 1 ? (last - pts(0)) / (num_frames() - 1) : 0;
  }
  end_pts_ = last + last_duration;
}

std::size_t FrameIndex::entry_of(std::int64_t frame) const {
  const std::size_t target = packet_of(frame);
  for (std::size_t i = target + 1; i-- > 0;) {
    if (packets_[i].is_key && packets_[i].pts <= packets_[target].pts) return i;
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
  const auto found = std::lower_bound(
      by_time_.begin(), by_time_.end(), wanted, [this](std::uint32_t i, const auto& value) {
        return std::make_pair(packets_[i].pts, packets_[i].pos) < value;
      });
  if (found == by_time_.end()) return std::nullopt;
  if (std::make_pair(packets_[*found].pts, packets_[*found].pos) != wanted) return std::nullopt;
  return *found;
}

}  // namespace shardwise::detail
