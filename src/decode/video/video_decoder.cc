#include "decode/video/video_decoder.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <tuple>

#include "base/assert.h"
#include "base/text.h"
#include "decode/decode_failure.h"

namespace shardwise::detail {
namespace {

std::string named(std::int64_t frame) { return "frame " + std::to_string(frame); }

bool is_key_frame(const AVFrame& frame) noexcept {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 29, 100)
  return (frame.flags & AV_FRAME_FLAG_KEY) != 0;
#else
  return frame.key_frame != 0;
#endif
}

}  // namespace

VideoDecoder::VideoDecoder(MediaView bytes, std::uint64_t max_pixels, std::uint64_t max_frames)
    : demuxer_(bytes), max_pixels_(max_pixels), packet_(make_packet()), frame_(make_frame()) {
  const LibavMessages messages;
  choose_stream();
  demuxer_.select(stream_);
  // In containers for video, each packet has a whole frame and its time, so libav need not parse.
  demuxer_.format().flags |= AVFMT_FLAG_NOPARSE | AVFMT_FLAG_NOFILLIN;
  const AVStream& stream = demuxer_.stream(stream_);
  open_codec();
  turn_ = turn_of(stream);
  converter_.emplace(turn_);
  find_size(max_pixels);
  index_.emplace(demuxer_, stream_, reordering(), max_frames);
  next_packet_ = index_->num_packets();
  needs_new_codec_ = !index_->begins_with_key() || index_->is_mixed();
  if (index_->needs_decoding()) number_by_decoding();
  if (size_.width == 0) {
    // For some codecs (MPEG-4 part 2 in MP4) only the packets contain the size, so decode one
    // frame.
    start_at(0);
    if (receive()) require_next();
    find_size(max_pixels);
    if (size_.width == 0) throw DecodeFailure("the video has no pixels");
  }
  times_.resize(static_cast<std::size_t>(num_frames()));
  for (std::size_t i = 0; i < times_.size(); ++i) {
    times_[i] = seconds(index_->pts(static_cast<std::int64_t>(i)));
  }
}

void VideoDecoder::open_codec() {
  codec_ = open_decoder(demuxer_.stream(stream_), max_pixels_);
  mark_.watch(*codec_);
  is_used_ = false;
}

void VideoDecoder::find_size(std::uint64_t max_pixels) {
  if (codec_->width <= 0 || codec_->height <= 0) return;
  size_ = {codec_->width, codec_->height};
  if (static_cast<std::uint64_t>(size_.width) >
      max_pixels / static_cast<std::uint64_t>(size_.height)) {
    throw DecodeFailure("the video of " +
                        size_text(static_cast<std::uint64_t>(size_.height),
                                  static_cast<std::uint64_t>(size_.width)) +
                        " exceeds the limit of " + human_count(max_pixels) +
                        " pixels (max_pixels)");
  }
}

/// Chooses the stream that FFmpeg's program would choose: default streams first, then the one with
/// the most pixels, then the first. Album covers are ignored.
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
  if (!best) throw DecodeFailure("the file has no video track");
  stream_ = *best;
  time_base_ = demuxer_.stream(stream_).time_base;
  if (time_base_.num <= 0 || time_base_.den <= 0)
    throw DecodeFailure("the time stamps have no unit");
}

// The size is taken from the codec's own header if it has one, otherwise from the container. A
// frame of another size is an error when it is decoded.
std::int64_t VideoDecoder::height() const noexcept {
  return turn_.swaps_axes ? size_.width : size_.height;
}

std::int64_t VideoDecoder::width() const noexcept {
  return turn_.swaps_axes ? size_.height : size_.width;
}

std::string_view VideoDecoder::codec() const noexcept { return avcodec_get_name(codec_->codec_id); }

FrameIndex::Reordering VideoDecoder::reordering() const noexcept {
  using Reordering = FrameIndex::Reordering;
  switch (codec_->codec_id) {
    case AV_CODEC_ID_MPEG1VIDEO:
    case AV_CODEC_ID_MPEG2VIDEO:
    case AV_CODEC_ID_MPEG4:
      return Reordering::kPossible;
    case AV_CODEC_ID_H264:
    case AV_CODEC_ID_HEVC:
      return codec_->has_b_frames > 0 ? Reordering::kPossible : Reordering::kUnlikely;
    default:
      return Reordering::kNone;
  }
}

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
  if (shown_ == number) return;
  const std::size_t entry = index_->entry_of(number);
  const bool is_ahead = run_ == Run::kProven && entry <= next_packet_ && number > previous_;
  try {
    decode_from(is_ahead ? std::nullopt : std::optional(entry), number);
  } catch (const DecodeFailure&) {
    if (entry_ == 0 && is_first_run_) throw;
    decode_from_earlier(number);
  }
}

/// Called after decoding from a supposed key frame has failed. libav may have decoded or omitted
/// frames that cannot be decoded from there. This retries from earlier key frames, and finally from
/// the first packet with an unused decoder, which gives the correct sequence.
void VideoDecoder::decode_from_earlier(std::int64_t number) {
  constexpr int kTries = 2;
  needs_new_codec_ = true;
  std::size_t entry = entry_;
  for (int i = 0; i < kTries; ++i) {
    entry = index_->key_before(entry);
    if (entry == 0) break;
    try {
      return decode_from(entry, number);
    } catch (const DecodeFailure&) {
      continue;
    }
  }
  decode_from(0, number);
}

/// Decodes from packet `entry`, or from the decoder's present position if `entry` is nullopt.
void VideoDecoder::decode_from(std::optional<std::size_t> entry, std::int64_t number) {
  try {
    if (entry) start_at(*entry);
    decode_next(number);
  } catch (...) {
    run_ = Run::kNone;
    shown_ = -1;
    throw;
  }
}

void VideoDecoder::decode_next(std::int64_t number) {
  do {
    if (!receive()) throw DecodeFailure(named(number) + " cannot be decoded");
    require_next();
  } while (shown_ < number);
  if (shown_ > number) throw DecodeFailure(named(number) + " cannot be decoded");
  if (frame_->width != size_.width || frame_->height != size_.height) {
    const auto text = [](std::int64_t height, std::int64_t width) {
      return size_text(static_cast<std::uint64_t>(height), static_cast<std::uint64_t>(width));
    };
    throw DecodeFailure(named(number) + " is " + text(frame_->height, frame_->width) + ", not " +
                        text(size_.height, size_.width));
  }
}

/// Checks that frame_ is the expected next frame, and sets shown_. Skips frames shown before the
/// key frame, because they may be predicted from frames that were not decoded.
void VideoDecoder::require_next() {
  const auto packet = static_cast<std::size_t>(frame_->pts);
  if (frame_->pts < 0 || packet >= index_->num_packets()) {
    throw DecodeFailure("a frame belongs to no packet");
  }
  if (packet == entry_ && run_ == Run::kEntering) prove_entry();
  const std::uint32_t frame = index_->frame_of(packet);
  if (frame == FrameIndex::kNoFrame) return;
  if (previous_ >= 0) {
    if (frame != previous_ + 1) {
      throw DecodeFailure("the time stamps of packets and frames differ");
    }
  } else {
    const std::uint32_t entry = index_->frame_of(entry_);
    const bool is_entry_shown = entry != FrameIndex::kNoFrame;
    if (entry_ != 0 && is_entry_shown && frame < entry) return;
    if (!may_be_first(frame)) throw DecodeFailure("frames are missing after a key frame");
  }
  require_whole();
  previous_ = shown_ = frame;
}

/// True if this may be the first frame that decoding from entry_ returns, because no earlier frame
/// follows the entry.
bool VideoDecoder::may_be_first(std::uint32_t frame) const {
  if (entry_ == 0) return frame == 0;
  if (run_ != Run::kProven) return false;
  const std::uint32_t entry = index_->frame_of(entry_);
  if (entry != FrameIndex::kNoFrame) return frame == entry;
  return frame == 0 || index_->packet_of(frame - 1) < entry_;
}

/// Checks that the decoder treats the entry as a key frame. REQUIRES: frame_ is the entry's own
/// frame.
void VideoDecoder::prove_entry() {
  if (!is_key_frame(*frame_) || frame_->pict_type != AV_PICTURE_TYPE_I) {
    index_->set_no_key(entry_);
    throw DecodeFailure("a packet is marked as a key frame, but has a frame of another type");
  }
  run_ = Run::kProven;
}

void VideoDecoder::require_whole() const {
  if (frame_->decode_error_flags == 0 && (frame_->flags & AV_FRAME_FLAG_CORRUPT) == 0) return;
  const std::string reason = LibavMessages::last();
  throw DecodeFailure("a frame is damaged" + (reason.empty() ? "" : " (" + reason + ")"));
}

/// Decodes the next frame into frame_. Returns false at the end.
bool VideoDecoder::receive() {
  for (;;) {
    shown_ = -1;
    const std::uint64_t before = LibavMessages::count();
    const int result = avcodec_receive_frame(codec_.get(), frame_.get());
    require_no_complaint(before);
    require_end();
    if (result == 0) {
      ++frames_decoded_;
      return true;
    }
    if (result == AVERROR_EOF) return false;
    if (result != AVERROR(EAGAIN) && !is_needless()) {
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
  sent_ = next_packet_ - 1;
  is_used_ = true;
  const std::uint64_t before = LibavMessages::count();
  const int result = avcodec_send_packet(codec_.get(), packet_.get());
  av_packet_unref(packet_.get());
  has_packet_ = false;
  if (result < 0 && !is_needless()) throw_libav_failure("a frame is damaged", result);
  require_no_complaint(before);
  require_end();
}

/// True if the frame of the last packet is not requested, so it need not be complete.
bool VideoDecoder::is_needless() const noexcept {
  if (numbering_ != Pass::kNone) return numbering_ == Pass::kBeforeFirst;
  const std::uint32_t frame = index_->frame_of(sent_);
  const std::uint32_t entry = index_->frame_of(entry_);
  if (frame == FrameIndex::kNoFrame) return index_->is_shown(sent_);
  return entry_ != 0 && entry != FrameIndex::kNoFrame && frame < entry;
}

/// Throws if libav has reported an error since LibavMessages::count() was `before`. Does nothing if
/// the frame need not be complete. libav replaces missing reference frames by invented ones. It
/// reports this, but not for which frame.
void VideoDecoder::require_no_complaint(std::uint64_t before) const {
  if (LibavMessages::count() == before) return;
  if (entry_ == 0 ? is_first_run_ : is_needless()) return;
  throw DecodeFailure("a frame is damaged (" + LibavMessages::last() + ")");
}

void VideoDecoder::require_end() {
  if (mark_.is_left()) throw DecodeFailure("a frame is damaged (the data ends early)");
}

// ------------------------------------------------------------------------------------- numbering

/// Numbers the frames by decoding all of them once. Frames before the first one that can be decoded
/// are omitted, as in FFmpeg's program.
void VideoDecoder::number_by_decoding() {
  std::vector<std::uint32_t> packets;
  std::vector<bool> is_seen(index_->num_packets());
  start_at(0);
  numbering_ = Pass::kBeforeFirst;
  while (receive()) {
    const auto packet = static_cast<std::size_t>(frame_->pts);
    if (frame_->pts < 0 || packet >= is_seen.size() || is_seen[packet]) {
      throw DecodeFailure("a packet has several frames");
    }
    is_seen[packet] = true;
    numbering_ = Pass::kBehindFirst;
    require_whole();
    if (index_->is_shown(packet)) packets.push_back(static_cast<std::uint32_t>(packet));
  }
  numbering_ = Pass::kNone;
  run_ = Run::kNone;
  index_->number(packets);
}

// --------------------------------------------------------------------------------------- seeking

/// Resets the decoder. For some codecs a flush is not enough: they keep more state than a key frame
/// overwrites, and replacements for missing frames would then depend on earlier reads.
void VideoDecoder::reset_codec(std::size_t packet) {
  if (packet == 0 && needs_new_codec_ && is_used_) {
    open_codec();
  } else {
    avcodec_flush_buffers(codec_.get());
  }
  is_first_run_ = !is_used_;
}

void VideoDecoder::start_at(std::size_t packet) {
  run_ = Run::kNone;
  shown_ = -1;
  previous_ = -1;
  reset_codec(packet);
  is_draining_ = false;
  move_to(packet);
  entry_ = packet;
  sent_ = packet;
  run_ = packet == 0 ? Run::kProven : Run::kEntering;
}

/// Moves to this packet, and reads it into packet_. Containers record different kinds of times, so
/// a seek may end after the packet. In that case seeks to earlier key packets, and finally rewinds.
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
  next_packet_ = 0;
  while (next_packet_ <= packet) {
    if (!take_packet()) throw DecodeFailure("a key frame was not found again");
  }
}

/// Reads packets up to this one after a seek. Returns false if the seek ended after this packet.
bool VideoDecoder::reach(std::size_t packet) {
  next_packet_ = index_->num_packets();
  if (!read_packet()) return false;
  const auto found = index_->find(*packet_);
  if (!found || *found > packet) return false;
  next_packet_ = *found;
  name_packet();
  while (next_packet_ <= packet) {
    if (!take_packet()) return false;
  }
  return true;
}

/// Reads the next packet into packet_. Returns false at the end.
bool VideoDecoder::take_packet() {
  if (!read_packet()) return false;
  name_packet();
  return true;
}

bool VideoDecoder::read_packet() {
  av_packet_unref(packet_.get());
  has_packet_ = demuxer_.next(*packet_);
  return has_packet_;
}

/// Replaces the time of packet_ by its number, so that the decoded frame carries this number in any
/// order of output. Clears the mark that would make the decoder discard the frame.
void VideoDecoder::name_packet() {
  packet_->pts = static_cast<std::int64_t>(next_packet_++);
  packet_->dts = AV_NOPTS_VALUE;
  packet_->flags &= ~AV_PKT_FLAG_DISCARD;
}

}  // namespace shardwise::detail
