// Videos whose container is wrong in its key frames, times, edit list or elements, or which lack
// some packets.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <set>

#include "decode/video_frames.h"
#include "media_bytes.h"
#include "shardwise/base/error.h"
#include "shardwise/decode/video_reader.h"
#include "support/support.h"

namespace shardwise {
namespace {

using fuzz::encode_video;
using fuzz::VideoSpec;
using test::all_numbers;
using test::can_encode;
using test::Numbers;
using test::read;
using test::shown;
using testing::HasSubstr;

/// Hides a table of an MP4 by renaming its box: readers skip boxes with unknown names.
std::string without_box(std::string mp4, const std::string& box) {
  const std::size_t at = mp4.find(box);
  if (at == mp4.npos) throw std::runtime_error("there is no " + box);
  return mp4.replace(at, 4, "skip");
}

/// Returns the positions of the blocks' times in a Matroska without sound. Each time has two bytes,
/// and flags follow it.
std::vector<std::size_t> block_times(const std::string& matroska, int num_frames) {
  std::vector<std::size_t> result;
  for (std::size_t at = matroska.find('\xA3'); at != matroska.npos;
       at = matroska.find('\xA3', at + 1)) {
    const auto width =
        static_cast<std::size_t>(std::countl_zero(static_cast<std::uint8_t>(matroska[at + 1])) + 1);
    // This is a SimpleBlock of track 1.
    if (at + width + 5 > matroska.size() || matroska[at + 1 + width] != '\x81') continue;
    if ((static_cast<unsigned char>(matroska[at + width + 4]) & 0x7F) != 0) continue;
    result.push_back(at + width + 2);
  }
  if (result.size() != static_cast<std::size_t>(num_frames)) {
    throw std::runtime_error("blocks were not found");
  }
  return result;
}

/// Returns the time at a position from block_times(), relative to the cluster's time.
int time_at(const std::string& matroska, std::size_t place) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(matroska[i]); };
  return static_cast<std::int16_t>(byte(place) << 8 | byte(place + 1));
}

/// Returns the first key frame at or after packet `from`.
std::size_t next_key(const std::string& matroska, const std::vector<std::size_t>& places,
                     std::size_t from) {
  while ((matroska[places.at(from) + 2] & '\x80') == 0) ++from;
  return from;
}

/// Returns a Matroska without sound in which all packets are marked as key frames.
std::string with_all_keys(std::string matroska, int num_frames) {
  for (const std::size_t at : block_times(matroska, num_frames)) matroska[at + 2] = '\x80';
  return matroska;
}

/// Returns a Matroska without sound in which the time of one packet is changed.
std::string with_time_moved(std::string matroska, int num_frames, std::size_t packet, int by_ms) {
  const std::size_t at = block_times(matroska, num_frames).at(packet);
  const auto time = static_cast<std::uint16_t>(time_at(matroska, at) + by_ms);
  matroska[at] = static_cast<char>(time >> 8);
  matroska[at + 1] = static_cast<char>(time & 0xFF);
  return matroska;
}

/// Reads each frame separately, in random order, and compares it with `expected`, which has all
/// frames in order.
void expect_any_order(const std::string& bytes, const std::vector<std::uint8_t>& expected) {
  VideoReader video(bytes);
  const std::size_t size = video.frame_bytes();
  ASSERT_EQ(static_cast<std::size_t>(video.info().num_frames) * size, expected.size());
  std::mt19937_64 random(17);
  Numbers numbers = all_numbers(video);
  std::shuffle(numbers.begin(), numbers.end(), random);
  for (const std::int64_t number : numbers) {
    const auto frame = read(video, {number});
    EXPECT_EQ(
        std::memcmp(frame.data(), expected.data() + static_cast<std::size_t>(number) * size, size),
        0)
        << "frame " << number;
    if (number % 7 != 0) continue;
    VideoReader other(bytes);
    EXPECT_EQ(read(other, {number}), frame);
  }
}

/// Reads each frame several times, in several orders. Each frame must always give the same picture,
/// or be rejected. Returns the number of frames, and the number of frames that were read at least
/// once.
std::pair<std::size_t, std::size_t> expect_one_picture_each(const std::string& bytes) {
  std::vector<std::set<std::vector<std::uint8_t>>> seen;
  const auto look = [&](VideoReader& video, std::int64_t number) {
    try {
      seen[static_cast<std::size_t>(number)].insert(read(video, {number}));
    } catch (const BadField&) {
    }
  };
  VideoReader in_order(bytes);
  seen.resize(all_numbers(in_order).size());
  for (const std::int64_t number : all_numbers(in_order)) look(in_order, number);
  VideoReader video(bytes);
  std::mt19937_64 random(17);
  for (int i = 0; i < 60; ++i) look(video, static_cast<std::int64_t>(random() % seen.size()));
  std::size_t num_read = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    VideoReader alone(bytes);
    look(alone, static_cast<std::int64_t>(i));
    EXPECT_LE(seen[i].size(), 1U) << "frame " << i;
    num_read += seen[i].size();
  }
  return {seen.size(), num_read};
}

std::vector<std::uint8_t> read_all(const std::string& bytes) {
  VideoReader video(bytes);
  return read(video, all_numbers(video));
}

TEST(VideoReaderTest, WhatAContainerCallsAKeyFrameNeedNotBeOne) {
  for (const char* codec : {"mpeg4", "libx264", "libx265", "libvpx-vp9"}) {
    if (!can_encode(codec)) continue;
    SCOPED_TRACE(codec);
    VideoSpec spec{.codec = codec, .moves = true};
    if (spec.codec == "libx265") spec.codec_options = {{"x265-params", "log-level=none"}};
    if (spec.codec == "libvpx-vp9") spec.codec_options = {{"cpu-used", "8"}};
    if (spec.codec == "mpeg4") spec.b_frames = 1;
    const std::string mp4 = encode_video(spec);
    expect_any_order(without_box(mp4, "stss"), read_all(mp4));
    spec.container = "matroska";
    const std::string matroska = encode_video(spec);
    expect_any_order(with_all_keys(matroska, spec.num_frames), read_all(matroska));
  }
}

TEST(VideoReaderTest, FramesThatAreRefreshedInPartsAreReadFromAFirstKeyFrame) {
  if (!can_encode("libx264"))
    GTEST_SKIP() << "needs an encoder for H.264; skipped because this libavcodec has none";
  for (const char* container : {"mp4", "matroska"}) {
    const std::string bytes =
        encode_video({.codec = "libx264",
                      .container = container,
                      .moves = true,
                      .codec_options = {{"x264-params", "intra-refresh=1:keyint=8:bframes=0"}}});
    expect_any_order(bytes, read_all(bytes));
  }
}

/// Removes some packets from a Matroska without sound, by turning their blocks into elements that
/// readers skip.
std::string without_packets(std::string matroska, int num_frames,
                            const std::vector<std::size_t>& packets) {
  const std::vector<std::size_t> times = block_times(matroska, num_frames);
  for (const std::size_t i : packets) matroska[matroska.rfind('\xA3', times.at(i) - 3)] = '\xEC';
  return matroska;
}

TEST(VideoReaderTest, WithoutSomePacketsEachFrameIsOnePictureInAnyOrder) {
  std::size_t num_frames = 0;
  std::size_t num_read = 0;
  for (const char* codec : {"mpeg4", "libx264", "libx265", "libvpx", "libvpx-vp9"}) {
    if (!can_encode(codec)) continue;
    VideoSpec spec{.codec = codec, .container = "matroska", .num_frames = 40, .moves = true};
    if (spec.codec == "libx265") {
      spec.codec_options = {{"x265-params", "log-level=none:bframes=2:keyint=10"}};
    }
    if (spec.codec == "libx264") spec.b_frames = 2;
    if (spec.codec.starts_with("libvpx")) {
      spec.codec_options = {{"deadline", "realtime"}, {"auto-alt-ref", "0"}, {"cpu-used", "4"}};
      spec.width = 96;
      spec.height = 64;
      // At a low bit rate, frames of VP8 end early after a lost packet, because their bits are
      // decoded with probabilities from earlier frames.
      if (spec.codec == "libvpx") spec.codec_options["b"] = "20000";
    }
    const std::string whole = encode_video(spec);
    for (const std::vector<std::size_t>& lost : {std::vector<std::size_t>{0},
                                                 {0, 1, 2},
                                                 {1},
                                                 {2, 3},
                                                 {12},
                                                 {1, 15, 31},
                                                 {30},
                                                 {1, 11, 21, 31}}) {
      SCOPED_TRACE(testing::Message() << codec << ", lost: " << testing::PrintToString(lost));
      const auto [frames, read] = expect_one_picture_each(without_packets(whole, 40, lost));
      num_frames += frames;
      num_read += read;
    }
  }
  EXPECT_GE(2 * num_read, num_frames);
}

TEST(VideoReaderTest, FramesOfOneTimeAreFrames) {
  for (const char* codec : {"mpeg4", "libx264", "mjpeg"}) {
    if (!can_encode(codec)) continue;
    SCOPED_TRACE(codec);
    const VideoSpec spec{.codec = codec,
                         .container = "matroska",
                         .format = std::string_view(codec) == "mjpeg" ? "yuvj420p" : "yuv420p",
                         .rate = 1200};
    const std::string bytes = encode_video(spec);
    VideoReader video(bytes);
    ASSERT_EQ(video.info().num_frames, spec.num_frames);
    EXPECT_EQ(shown(video, all_numbers(video)), all_numbers(video));
    EXPECT_TRUE(std::ranges::is_sorted(video.times()));
    EXPECT_NE(std::ranges::adjacent_find(video.times()), video.times().end());
    expect_any_order(bytes, read_all(bytes));
  }
}

TEST(VideoReaderTest, TimesOfDecodingDoNotNumberFrames) {
  for (const char* codec : {"mpeg4", "libx264"}) {
    if (!can_encode(codec)) continue;
    SCOPED_TRACE(codec);
    const std::string good = encode_video(
        {.codec = codec, .b_frames = 2, .moves = true, .muxer_options = {{"use_editlist", "0"}}});
    const std::string bytes = without_box(good, "ctts");
    const std::vector<std::uint8_t> all = read_all(good);
    expect_any_order(bytes, all);
    VideoReader video(bytes);
    EXPECT_EQ(video.info().num_frames, 30);
    EXPECT_TRUE(std::ranges::is_sorted(video.times()));
    EXPECT_NEAR(video.times()[7] - video.times()[0], 7 / 25.0, 0.002);
  }
}

/// Changes the edit list of an MP4. `change` gets the duration in the file's units, and the
/// beginning in the track's units.
template <class Change>
std::string with_edit(std::string mp4, const Change& change) {
  const std::size_t at = mp4.find("elst");
  if (at == mp4.npos || mp4[at + 4] != 0) throw std::runtime_error("there is no edit list");
  std::array<std::uint32_t, 2> numbers{};
  for (std::size_t i = 0; i < 8; ++i) {
    numbers[i / 4] = numbers[i / 4] << 8 | static_cast<unsigned char>(mp4[at + 12 + i]);
  }
  change(numbers[0], numbers[1]);
  for (std::size_t i = 8; i-- > 0; numbers[i / 4] >>= 8) {
    mp4[at + 12 + i] = static_cast<char>(numbers[i / 4] & 0xFF);
  }
  return mp4;
}

/// Returns an MP4 whose edit list ends after half of its frames.
std::string with_half_of_edit(const std::string& mp4) {
  return with_edit(mp4, [](std::uint32_t& duration, std::uint32_t&) { duration /= 2; });
}

TEST(VideoReaderTest, FramesThatAnEditListLeavesOutAreNoneAndOfMpeg1Refused) {
  for (const char* codec : {"mpeg4", "mpeg2video", "libx264", "mjpeg", "mpeg1video"}) {
    if (!can_encode(codec)) continue;
    SCOPED_TRACE(codec);
    const bool is_jpeg = std::string_view(codec) == "mjpeg";
    const std::string whole = encode_video({.codec = codec,
                                            .format = is_jpeg ? "yuvj420p" : "yuv420p",
                                            .num_frames = 40,
                                            .b_frames = is_jpeg ? 0 : 2});
    EXPECT_EQ(VideoReader(whole).info().num_frames, 40);
    const std::string half = with_half_of_edit(whole);
    if (std::string_view(codec) == "mpeg1video") {
      EXPECT_THAT(test::error_text([&] { VideoReader video(half); }),
                  HasSubstr("frames of MPEG-1"));
      continue;
    }
    const Numbers first = all_numbers(VideoReader(half));
    EXPECT_EQ(first.size(), 20U);
    VideoReader video(whole);
    expect_any_order(half, read(video, first));
  }
}

TEST(VideoReaderTest, OneFrameThatAnEditListLeavesHasItsTime) {
  for (const int b_frames : {0, 2}) {
    SCOPED_TRACE(b_frames);
    const std::string whole = encode_video({.codec = "mpeg4", .b_frames = b_frames});
    VideoReader all(whole);
    const double scale = 12800;  // units per second in a track of 25 frames per second
    const std::string one = with_edit(whole, [&](std::uint32_t& duration, std::uint32_t& begin) {
      duration = 40;
      begin += static_cast<std::uint32_t>(17 * scale / 25);
    });
    VideoReader video(one);
    ASSERT_EQ(video.info().num_frames, 1);
    EXPECT_EQ(shown(video, {0}), Numbers{17});
    EXPECT_NEAR(video.info().end_seconds - video.info().begin_seconds, 0.04, 0.001);
    EXPECT_EQ(video.frame_at(video.info().begin_seconds + 0.02), 0);
  }
}

TEST(VideoReaderTest, TimesThatPutAFrameAcrossAKeyFrameAreRefused) {
  struct Case {
    const char* codec;
    int group;
    int b_frames;
    std::size_t packet;
    int by_ms;
  };
  for (const Case& c : {Case{"mjpeg", 1, 0, 5, 220}, Case{"ffv1", 1, 0, 5, 220},
                        Case{"mpeg4", 1, 0, 5, 220}, Case{"libx264", 1, 0, 5, 220},
                        Case{"libx265", 1, 0, 5, 220}, Case{"libvpx-vp9", 1, 0, 5, 220},
                        // The moved frames are not key frames.
                        Case{"mpeg4", 10, 0, 8, 220}, Case{"libx264", 10, 0, 8, 220},
                        Case{"mpeg4", 10, 0, 15, -220}, Case{"mpeg4", 10, 2, 18, 420},
                        Case{"libx264", 10, 0, 15, -220}, Case{"libvpx-vp9", 10, 0, 5, 60}}) {
    if (!can_encode(c.codec)) continue;
    SCOPED_TRACE(testing::Message() << c.codec << ", packet " << c.packet << " by " << c.by_ms);
    VideoSpec spec{.codec = c.codec,
                   .container = "matroska",
                   .format = std::string_view(c.codec) == "mjpeg"  ? "yuvj420p"
                             : std::string_view(c.codec) == "ffv1" ? "bgr0"
                                                                   : "yuv420p",
                   .group = c.group,
                   .b_frames = c.b_frames,
                   .moves = true};
    if (spec.codec == "libx265") {
      spec.codec_options = {
          {"x265-params", "log-level=none:bframes=0:keyint=" + std::to_string(c.group)}};
    }
    if (spec.codec == "libvpx-vp9") {
      spec.codec_options = {{"cpu-used", "8"}, {"auto-alt-ref", "0"}, {"lag-in-frames", "0"}};
    }
    const std::string bytes = encode_video(spec);
    VideoReader good(bytes);
    const std::string moved = with_time_moved(bytes, spec.num_frames, c.packet, c.by_ms);
    EXPECT_THAT(test::error_text([&] { VideoReader{moved}; }), HasSubstr("do not ascend"));
  }
}

TEST(VideoReaderTest, AFrameDirectlyBehindAKeyFrameIsShownBeforeItOnlyByItsOwnHeader) {
  for (const auto& [codec, b_frames] : std::vector<std::pair<const char*, int>>{
           {"mpeg4", 2}, {"mpeg2video", 2}, {"libx264", 0}, {"libx264", 2}, {"libx265", 2}}) {
    if (!can_encode(codec)) continue;
    SCOPED_TRACE(testing::Message() << codec << ", " << b_frames);
    VideoSpec spec{.codec = codec, .container = "matroska", .b_frames = b_frames, .moves = true};
    if (spec.codec == "libx265") {
      spec.codec_options = {{"x265-params", "log-level=none:bframes=2:keyint=10:open-gop=1"}};
    }
    const std::string bytes = encode_video(spec);
    EXPECT_EQ(VideoReader(bytes).info().num_frames, 30);
    const std::vector<std::size_t> places = block_times(bytes, spec.num_frames);
    const auto time = [&](std::size_t packet) { return time_at(bytes, places[packet]); };
    const std::size_t key = next_key(bytes, places, 5);
    std::size_t behind = key + 1;
    while (time(behind) < time(key)) ++behind;
    const std::string moved =
        with_time_moved(bytes, spec.num_frames, behind, time(key) - 20 - time(behind));
    EXPECT_THAT(test::error_text([&] { VideoReader{moved}; }), HasSubstr("do not ascend"));
  }
}

/// Reads each frame separately, and some in random order. Each must be the frame of the sequence,
/// or be rejected. Returns the number of frames that were read.
std::size_t expect_equal_or_refused(const std::string& bytes,
                                    const std::vector<std::uint8_t>& sequence) {
  VideoReader video(bytes);
  const std::size_t size = video.frame_bytes();
  EXPECT_EQ(all_numbers(video).size() * size, sequence.size());
  std::size_t num_read = 0;
  const auto compare = [&](VideoReader& reader, std::int64_t number) {
    try {
      const auto frame = read(reader, {number});
      const auto* const expected = sequence.data() + static_cast<std::size_t>(number) * size;
      EXPECT_EQ(std::memcmp(frame.data(), expected, size), 0) << "frame " << number;
      return true;
    } catch (const BadField&) {
      return false;
    }
  };
  std::mt19937_64 random(17);
  for (const std::int64_t number : all_numbers(video)) {
    VideoReader alone(bytes);
    num_read += compare(alone, number) ? 1 : 0;
    compare(video, static_cast<std::int64_t>(random() % all_numbers(video).size()));
  }
  return num_read;
}

TEST(VideoReaderTest, TimesThatPutAFrameBehindTheKeyFrameThatItLeadsMoveNoOther) {
  for (const char* codec : {"mpeg1video", "mpeg2video", "libx264", "libx265"}) {
    if (!can_encode(codec)) continue;
    SCOPED_TRACE(codec);
    VideoSpec spec{.codec = codec, .container = "matroska", .b_frames = 2, .moves = true};
    if (spec.codec == "libx264") {
      spec.group = 12;
      spec.b_frames = 3;
      spec.codec_options = {{"x264-params", "open-gop=1:scenecut=0:b-adapt=0"}};
    }
    if (spec.codec == "libx265") {
      spec.codec_options = {
          {"x265-params", "log-level=none:bframes=2:keyint=10:open-gop=1:scenecut=0"}};
    }
    const std::string bytes = encode_video(spec);
    const std::vector<std::size_t> places = block_times(bytes, spec.num_frames);
    const auto time = [&](std::size_t packet) { return time_at(bytes, places[packet]); };
    const std::size_t key = next_key(bytes, places, 5);
    std::size_t last = key;  // last packet that is shown before the key frame
    while (time(last + 1) < time(key)) ++last;
    ASSERT_GT(last, key);
    const std::string moved =
        with_time_moved(bytes, spec.num_frames, last, time(key) + 10 - time(last));
    EXPECT_GE(expect_equal_or_refused(moved, read_all(bytes)), 5U);
  }
}

TEST(VideoReaderTest, WithoutTheFrameThatOthersBehindAKeyFrameNeedNoneHasAnothersNumber) {
  for (const char* codec : {"mpeg1video", "mpeg2video"}) {
    if (!can_encode(codec)) continue;
    const std::string whole =
        encode_video({.codec = codec, .container = "matroska", .num_frames = 40, .b_frames = 2});
    const std::vector<std::size_t> places = block_times(whole, 40);
    const auto time_of = [&](std::size_t packet) { return time_at(whole, places[packet]); };
    for (std::size_t lost = 8; lost < 32; ++lost) {
      SCOPED_TRACE(testing::Message() << codec << ", lost: " << lost);
      // For each packet: its time, and whether the decoder keeps its frame. A decoder keeps a
      // reference frame until the next reference frame arrives.
      std::vector<std::pair<int, bool>> sequence;
      int kept = -1, last = -1;
      for (std::size_t i = 0; i < 40; ++i) {
        const bool is_anchor = time_of(i) > last;
        if (is_anchor) last = time_of(i);
        if (i == lost) continue;
        if (is_anchor && kept >= 0) sequence.emplace_back(kept, true);
        (is_anchor ? kept : sequence.emplace_back(time_of(i), false).first) = time_of(i);
      }
      sequence.emplace_back(kept, true);
      const std::string bytes = without_packets(whole, 40, {lost});
      std::vector<int> times;
      for (const auto& [time, _] : sequence) times.push_back(time);
      std::ranges::sort(times);
      const VideoReader in_order(bytes);
      ASSERT_EQ(all_numbers(in_order).size(), times.size());
      std::size_t num_read = 0;
      for (std::size_t i = 0; i < times.size(); ++i) {
        VideoReader alone(bytes);
        try {
          read(alone, {static_cast<std::int64_t>(i)});
          ++num_read;
          EXPECT_EQ(sequence[i].first, times[i]) << "frame " << i;
        } catch (const BadField&) {
        }
      }
      EXPECT_GE(num_read, 8U);
    }
  }
}

TEST(VideoReaderTest, BehindAKeyFrameThatForgetsNothingMissingFramesAreMadeUpAsInSequence) {
  if (!can_encode("libx264"))
    GTEST_SKIP() << "needs an encoder for H.264; skipped because this libavcodec has none";
  for (const auto& [b_frames, params, lost_ones] :
       std::vector<std::tuple<int, std::string, Numbers>>{{3, "b-pyramid=normal", {13, 25}},
                                                          {8, "b-pyramid=strict:ref=6", {13}}}) {
    const VideoSpec spec{
        .codec = "libx264",
        .container = "matroska",
        .group = 12,
        .b_frames = b_frames,
        .moves = true,
        .codec_options = {{"x264-params", "open-gop=1:scenecut=0:b-adapt=0:" + params}}};
    const std::string whole = encode_video(spec);
    for (const std::int64_t lost : lost_ones) {
      SCOPED_TRACE(testing::Message() << params << ", lost: " << lost);
      const auto [frames, read] = expect_one_picture_each(
          without_packets(whole, spec.num_frames, {static_cast<std::size_t>(lost)}));
      EXPECT_EQ(frames, 29U);
      EXPECT_EQ(read, 29U);
    }
  }
}

/// Replaces `from` by `to`, which has the same length, in the second half of the file.
std::string with_other_half(std::string bytes, std::string_view from, std::string_view to) {
  int count = 0;
  for (std::size_t at = bytes.find(from, bytes.size() / 2); at != bytes.npos;
       at = bytes.find(from, at + 1)) {
    bytes.replace(at, to.size(), to);
    ++count;
  }
  if (count == 0) throw std::runtime_error("there is nothing to replace");
  return bytes;
}

TEST(VideoReaderTest, OfTwoJoinedStreamsFramesAreThoseOfOneDecoder) {
  // An MPEG-4 stream contains the name of its encoder, which affects decoding.
  const std::string mpeg4 = encode_video({.container = "matroska",
                                          .moves = true,
                                          .codec_options = {{"flags", "-global_header-bitexact"}}});
  const std::string by_another = with_other_half(mpeg4, "Lavc", "XviD0069 ");
  expect_any_order(by_another, read_all(by_another));
  // A decoder of MPEG-2 restarts after a header with another pixel shape.
  if (!can_encode("mpeg2video"))
    GTEST_SKIP() << "needs an encoder for MPEG-2; skipped because this libavcodec has none";
  const std::string mpeg2 =
      encode_video({.codec = "mpeg2video", .container = "matroska", .b_frames = 2, .moves = true});
  constexpr std::string_view kSize("\0\0\1\xB3\x04\x00\x30", 7);
  const std::size_t header = mpeg2.find(kSize);
  ASSERT_NE(header, mpeg2.npos);
  std::string from = mpeg2.substr(header, 8), to = from;
  to[7] = static_cast<char>((from[7] & 0x0F) | 0x30);
  const std::string stretched = with_other_half(mpeg2, from, to);
  expect_any_order(stretched, read_all(stretched));
}

/// The positions of an element of Matroska: identifier, size, content, end.
struct Element {
  std::size_t begin, size_begin, content, end;
};

/// Returns the elements in [at, end).
std::vector<Element> elements_of(const std::string& bytes, std::size_t at, std::size_t end) {
  std::vector<Element> found;
  const auto width = [&](std::size_t place) {
    return static_cast<std::size_t>(std::countl_zero(static_cast<std::uint8_t>(bytes[place])) + 1);
  };
  while (at < end) {
    const std::size_t size_begin = at + width(at);
    const std::size_t content = size_begin + width(size_begin);
    std::size_t size = static_cast<std::uint8_t>(bytes[size_begin]) & (0xFFu >> width(size_begin));
    for (std::size_t i = size_begin + 1; i < content; ++i) {
      size = size << 8 | static_cast<std::uint8_t>(bytes[i]);
    }
    found.push_back({at, size_begin, content, content + size});
    at = content + size;
  }
  return found;
}

TEST(VideoReaderTest, NoFramesAreLostBetweenDamagedElementsOfMatroska) {
  const std::string bytes = encode_video({.container = "matroska",
                                          .num_frames = 20,
                                          .group = 5,
                                          .with_sound = true,
                                          .muxer_options = {{"cluster_time_limit", "200"}}});
  const Element segment = elements_of(bytes, 0, bytes.size()).at(1);
  ASSERT_EQ(segment.end, bytes.size());
  std::vector<Element> headers, clusters;
  for (const Element& element : elements_of(bytes, segment.content, segment.end)) {
    if (bytes.substr(element.begin, 4) == "\x1F\x43\xB6\x75") clusters.push_back(element);
  }
  ASSERT_GE(clusters.size(), 3u);
  for (const Element& cluster : clusters) {
    headers.push_back(cluster);
    std::ranges::copy(elements_of(bytes, cluster.content, cluster.end),
                      std::back_inserter(headers));
  }
  // Live streams, which do not state the size of the segment, or of the segment and its clusters.
  std::string stream = bytes;
  const auto forget_size = [&](const Element& element) {
    const auto width = element.content - element.size_begin;
    stream[element.size_begin] = static_cast<char>((1u << (9 - width)) - 1);
    stream.replace(element.size_begin + 1, width - 1, width - 1, '\xFF');
  };
  forget_size(segment);
  std::string of_unknown_clusters = stream;
  std::swap(stream, of_unknown_clusters);
  for (const Element& cluster : clusters) forget_size(cluster);
  std::swap(stream, of_unknown_clusters);
  const std::vector<double> times = [&] {
    const VideoReader video(bytes);
    return std::vector(video.times().begin(), video.times().end());
  }();
  ASSERT_EQ(times.size(), 20u);
  const auto num_frames = [&](const std::string& changed) {
    try {
      return VideoReader(changed).times().size();
    } catch (const BadField&) {
      return times.size();
    }
  };
  for (const std::string& good : {bytes, stream, of_unknown_clusters}) {
    EXPECT_THAT(VideoReader(good).times(), testing::ElementsAreArray(times));
    // If clusters do not state their sizes, a wrong size can hide the beginning of the next
    // cluster.
    const bool knows_clusters = good != of_unknown_clusters;
    for (const Element& header : headers) {
      const std::size_t end = knows_clusters ? header.content : header.size_begin;
      for (std::size_t bit = 0; bit < 8 * (end - header.begin); ++bit) {
        std::string bad = good;
        char& byte = bad[header.begin + bit / 8];
        byte = static_cast<char>(byte ^ (1 << bit % 8));
        EXPECT_EQ(num_frames(bad), times.size()) << "bit " << bit << " at " << header.begin;
      }
    }
  }
}

}  // namespace
}  // namespace shardwise
