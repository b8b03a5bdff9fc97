#include "decode/video/video_decoder.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <tuple>

#include "base/assert.h"
#include "decode/decode_failure.h"

namespace shardwise::detail {
namespace {

std::string named(std::int64_t frame) { return "frame " + std::to_string(frame); }

std::string pixels_text(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + " x " + std::to_string(height) + " pixels";
}

}  // namespace

VideoDecoder::VideoDecoder(std::string_view bytes, std::uint64_t max_pixels,
                           std::uint64_t max_frames)
    : demuxer_(bytes), packet_(make_packet()), frame_(make_frame()) {
  const LibavMessages messages;
  choose_stream();
  demuxer_.select(stream_);
  // Whole frames lie in the packets of the containers that hold video, with their times.
  demuxer_.format().flags |= AVFMT_FLAG_NOPARSE | AVFMT_FLAG_NOFILLIN;
  const AVStream& stream = demuxer_.stream(stream_);
  codec_ = open_decoder(stream, max_pixels);
  turn_ = turn_of(stream);
  converter_.emplace(turn_);
  find_size(max_pixels);
  index_.emplace(demuxer_, stream_, max_frames);
  next_packet_ = index_->num_packets();
  if (size_.width == 0) {
    // Of some codecs (MPEG-4 part 2 in MP4) only the packets say it.
    start_at(index_->entry_of(0));
    receive();
    find_size(max_pixels);
    if (size_.width == 0) throw DecodeFailure("the video has no pixels");
  }
  times_.resize(static_cast<std::size_t>(num_frames()));
  for (std::size_t i = 0; i < times_.size(); ++i) {
    times_[i] = seconds(index_->pts(static_cast<std::int64_t>(i)));
  }
}

void VideoDecoder::find_size(std::uint64_t max_pixels) {
  if (codec_->width <= 0 || codec_->height <= 0) return;
  size_ = {codec_->width, codec_->height};
  if (static_cast<std::uint64_t>(size_.width) >
      max_pixels / static_cast<std::uint64_t>(size_.height)) {
    throw DecodeFailure(pixels_text(size_.width, size_.height) + " are more than the limit of " +
                        std::to_string(max_pixels));
  }
}

/// As FFmpeg's program chooses: a default stream before others, then the one with the most pixels,
/// then the first. Covers of albums are no video.
void VideoDecoder::choose_stream() {
  std::optional<unsigned> best;
  const auto rank = [this](unsigned i) {
    AVStream& stream = demuxer_.stream(i);
    return std::make_pair((stream.disposition & AV_DISPOSITION_DEFAULT) != 0,
                          std::int64_t{stream.codecpar->width} * stream.codecpar->height);
  };
  for (unsigned i = 0; i < demuxer_.num_streams(); ++i) {
    const AVStream& stream = demuxer_.stream(i);
    if (stream.codecpar->codec_type == AVMEDIA_TYPE_AUDIO) has_audio_ = true;
    if (stream.codecpar->codec_type != AVMEDIA_TYPE_VIDEO) continue;
    if ((stream.disposition & AV_DISPOSITION_ATTACHED_PIC) != 0) continue;
    if (!best || rank(i) > rank(*best)) best = i;
  }
  if (!best) throw DecodeFailure("it has no video");
  stream_ = *best;
  time_base_ = demuxer_.stream(stream_).time_base;
  if (time_base_.num <= 0 || time_base_.den <= 0) throw DecodeFailure("its times have no unit");
}

// The size is the container's, or, where the codec's own header has one, that. A frame of another
// size is refused when it is decoded.
std::int64_t VideoDecoder::height() const noexcept {
  return turn_.swaps_axes ? size_.width : size_.height;
}

std::int64_t VideoDecoder::width() const noexcept {
  return turn_.swaps_axes ? size_.height : size_.width;
}

std::string_view VideoDecoder::codec() const noexcept { return avcodec_get_name(codec_->codec_id); }

double VideoDecoder::seconds(std::int64_t pts) const noexcept {
  return static_cast<double>(pts) * time_base_.num / time_base_.den;
}

// --------------------------------------------------------------------------------------- reading

void VideoDecoder::read(std::span<const std::int64_t> numbers, std::uint8_t* out) {
  const LibavMessages messages;
  const std::size_t frame_size = static_cast<std::size_t>(height() * width()) * 3;
  std::vector<std::uint32_t> places(numbers.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return numbers[a] < numbers[b]; });
  const std::uint8_t* last = nullptr;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int64_t number = numbers[places[i]];
    SHARDWISE_ASSERT(number >= 0 && number < num_frames());
    std::uint8_t* const to = out + places[i] * frame_size;
    if (i > 0 && number == numbers[places[i - 1]]) {
      std::memcpy(to, last, frame_size);
    } else {
      decode(number);
      converter_->convert(*frame_, to);
    }
    last = to;
  }
}

void VideoDecoder::decode(std::int64_t number) {
  const std::int64_t pts = index_->pts(number);
  if (has_frame_ && frame_->pts == pts) return;
  const std::size_t entry = index_->entry_of(number);
  const bool is_ahead = is_running_ && entry <= next_packet_ && (!has_frame_ || pts > frame_->pts);
  try {
    if (!is_ahead) start_at(entry);
    decode_next(number);
  } catch (...) {
    is_running_ = false;
    has_frame_ = false;
    throw;
  }
}

void VideoDecoder::decode_next(std::int64_t number) {
  const std::int64_t pts = index_->pts(number);
  do {
    if (!receive() || frame_->pts > pts) {
      throw DecodeFailure(named(number) + " cannot be decoded");
    }
    // What comes before the key frame may be predicted from frames that were not decoded.
    if (frame_->pts >= entry_pts_) require_whole();
  } while (frame_->pts < pts);
  if (frame_->width != size_.width || frame_->height != size_.height) {
    throw DecodeFailure(named(number) + " has " + pixels_text(frame_->width, frame_->height) +
                        ", and not " + pixels_text(size_.width, size_.height));
  }
}

void VideoDecoder::require_whole() const {
  if (frame_->decode_error_flags == 0 && (frame_->flags & AV_FRAME_FLAG_CORRUPT) == 0) return;
  const std::string reason = LibavMessages::last();
  throw DecodeFailure("a frame is damaged" + (reason.empty() ? "" : " (" + reason + ")"));
}

/// Decodes the next frame into frame_; false at the end.
bool VideoDecoder::receive() {
  for (;;) {
    has_frame_ = false;
    const int result = avcodec_receive_frame(codec_.get(), frame_.get());
    if (result == 0) {
      ++frames_decoded_;
      has_frame_ = true;
      if (frame_->pts == AV_NOPTS_VALUE) frame_->pts = frame_->best_effort_timestamp;
      return true;
    }
    if (result == AVERROR_EOF) return false;
    if (result != AVERROR(EAGAIN) && sent_pts_ >= entry_pts_) {
      throw_libav_failure("a frame is damaged", result);
    }
    if (is_draining_) return false;
    send();
  }
}

void VideoDecoder::send() {
  if (!has_packet_ && !take_packet()) {
    is_draining_ = true;
    avcodec_send_packet(codec_.get(), nullptr);
    return;
  }
  sent_pts_ = packet_->pts;
  const int result = avcodec_send_packet(codec_.get(), packet_.get());
  av_packet_unref(packet_.get());
  has_packet_ = false;
  if (result < 0 && sent_pts_ >= entry_pts_) throw_libav_failure("a frame is damaged", result);
}

// --------------------------------------------------------------------------------------- seeking

void VideoDecoder::start_at(std::size_t packet) {
  is_running_ = false;
  has_frame_ = false;
  avcodec_flush_buffers(codec_.get());
  is_draining_ = false;
  move_to(packet);
  entry_pts_ = index_->packet_pts(packet);
  sent_pts_ = entry_pts_;
  is_running_ = true;
}

/// Makes packet_ this one. Containers know times of different kinds, so that a seek may end too
/// late: then from earlier key packets, and at last from the beginning.
void VideoDecoder::move_to(std::size_t packet) {
  constexpr int kTries = 3;
  if (next_packet_ == packet && !has_packet_ && take_packet()) return;
  std::size_t key = packet;
  for (int i = 0; i < kTries; ++i) {
    if (demuxer_.seek(index_->packet_pts(key)) && reach(packet)) return;
    if (key == 0) break;
    key = index_->key_before(key);
  }
  demuxer_.rewind();
  if (!reach(packet)) throw DecodeFailure("a key frame was not found again");
}

/// After a seek: reads up to this packet; false: it is not ahead.
bool VideoDecoder::reach(std::size_t packet) {
  next_packet_ = index_->num_packets();
  if (!take_packet()) return false;
  const auto found = index_->find(*packet_);
  if (!found || *found > packet) return false;
  next_packet_ = *found + 1;
  while (next_packet_ <= packet) {
    if (!take_packet()) return false;
  }
  return true;
}

/// Reads packet_; false at the end.
bool VideoDecoder::take_packet() {
  av_packet_unref(packet_.get());
  has_packet_ = demuxer_.next(*packet_);
  if (!has_packet_) return false;
  packet_->pts = FrameIndex::time_of(*packet_);
  ++next_packet_;
  return true;
}

}  // namespace shardwise::detail
