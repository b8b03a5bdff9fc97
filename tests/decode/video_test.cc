#include "shardwise/decode/video_reader.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "decode/media_tails.h"
#include "media_bytes.h"
#include "shardwise/base/error.h"
#include "support/sanitizers.h"
#include "support/support.h"

namespace shardwise {
namespace {

using fuzz::encode_video;
using fuzz::has_encoder;
using fuzz::VideoSpec;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Numbers = std::vector<std::int64_t>;

std::vector<std::uint8_t> read(VideoReader& video, const Numbers& numbers) {
  std::vector<std::uint8_t> frames(numbers.size() * video.frame_bytes());
  video.read(numbers, frames);
  return frames;
}

/// The numbers that the frames show.
Numbers shown(VideoReader& video, const Numbers& numbers) {
  const auto frames = read(video, numbers);
  Numbers result;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    result.push_back(fuzz::shown_number(frames.data() + i * video.frame_bytes(),
                                        static_cast<int>(video.info().width),
                                        static_cast<int>(video.info().height)));
  }
  return result;
}

Numbers all_numbers(const VideoReader& video) {
  Numbers numbers(static_cast<std::size_t>(video.info().num_frames));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i);
  return numbers;
}

// ------------------------------------------------------------------------- a video of somebody
// else

std::optional<std::filesystem::path> media_dir() {
  const auto corpus = test::corpus_dir();
  if (!corpus) return std::nullopt;
  return *corpus / "corpus" / "media";
}

/// The pixels of a given frame, [H, W, 3], as they lie in the file of a saved tensor: an archive of
/// uncompressed members.
std::string given_pixels(const std::string& path) {
  const std::string file = test::read_file(path);
  const std::size_t name = file.find("/data/0");
  if (name == std::string::npos) throw std::runtime_error(path + " has no pixels");
  const std::size_t header = file.rfind("PK\x03\x04", name);
  const auto two_bytes = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(file[at])) +
           256 * static_cast<std::size_t>(static_cast<unsigned char>(file[at + 1]));
  };
  const std::size_t begin = header + 30 + two_bytes(header + 26) + two_bytes(header + 28);
  return file.substr(begin, std::size_t{270} * 480 * 3);
}

double mean_difference(const std::uint8_t* frame, const std::string& given) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const int other = static_cast<unsigned char>(given[i]);
    sum += static_cast<std::uint64_t>(std::abs(frame[i] - other));
  }
  return static_cast<double>(sum) / static_cast<double>(given.size());
}

TEST(VideoCorpusTest, FramesEqualTheGivenOnesByNumberAndByTime) {
  const auto media = media_dir();
  if (!media) GTEST_SKIP() << "no corpus";
  const std::string path = *media / "nasa_13013.mp4";
  const std::string bytes = test::read_file(path);
  const auto given = nlohmann::json::parse(test::read_file(path + ".stream3.all_frames_info.json"));
  VideoReader video(bytes);
  EXPECT_EQ(video.info().width, 480);
  EXPECT_EQ(video.info().height, 270);
  ASSERT_EQ(video.info().num_frames, static_cast<std::int64_t>(given.size()));
  for (std::size_t i = 0; i < given.size(); ++i) {
    const double time = std::stod(given[i]["pts_time"].get<std::string>());
    EXPECT_NEAR(video.times()[i], time, 1e-6);
  }
  for (const std::int64_t number : {35, 0, 1, 2, 3, 4, 5}) {
    char name[64];
    std::snprintf(name, sizeof name, ".stream3.frame%06d.pt", static_cast<int>(number));
    const std::string pixels = given_pixels(path + name);
    EXPECT_LE(mean_difference(read(video, {number}).data(), pixels), 1.0) << number;
    const double time =
        std::stod(given[static_cast<std::size_t>(number)]["pts_time"].get<std::string>());
    VideoReader other(bytes);
    const auto at_time = read(other, {other.frame_at(time + 0.01)});
    EXPECT_LE(mean_difference(at_time.data(), pixels), 1.0) << time;
  }
}

TEST(VideoCorpusTest, ARangeAtTheEndDecodesOneGroupOfPictures) {
  const auto media = media_dir();
  if (!media) GTEST_SKIP() << "no corpus";
  const std::string bytes = test::read_file(*media / "nasa_13013.mp4");
  VideoReader video(bytes);
  const std::int64_t end = video.info().num_frames;
  std::vector<std::uint8_t> frames(10 * video.frame_bytes());
  video.read({.begin = end - 10, .end = end}, frames);
  EXPECT_LE(video.frames_decoded(), 250U);  // libx264's longest group, and less than the whole
  EXPECT_LT(video.frames_decoded(), static_cast<std::uint64_t>(end));
  VideoReader whole(bytes);
  const auto all = read(whole, all_numbers(whole));
  EXPECT_EQ(whole.frames_decoded(), static_cast<std::uint64_t>(end));
  EXPECT_EQ(std::memcmp(frames.data(), all.data() + all.size() - frames.size(), frames.size()), 0);
}

// ------------------------------------------------------------------------- videos of every kind

struct Kind {
  const char* name;
  VideoSpec spec;
};

/// Kinds whose encoder this libavcodec has.
std::vector<Kind> kinds() {
  std::vector<Kind> all = {
      {"mpeg4 in mp4", {}},
      {"mpeg4 in mp4, b-frames", {.b_frames = 2}},
      {"mpeg4 in mp4, in fragments",
       {.b_frames = 1, .muxer_options = {{"movflags", "frag_keyframe+empty_moov"}}}},
      {"mpeg4 in matroska, b-frames", {.container = "matroska", .b_frames = 2}},
      {"mpeg4 in mov, with sound", {.container = "mov", .b_frames = 2, .with_sound = true}},
      {"mpeg4 in matroska, with sound", {.container = "matroska", .with_sound = true}},
      {"ffv1 in matroska", {.codec = "ffv1", .container = "matroska", .format = "bgr0"}},
      {"mjpeg in mov", {.codec = "mjpeg", .container = "mov", .format = "yuvj420p"}},
      {"odd size", {.width = 67, .height = 45, .b_frames = 1}},
      {"h264 in mp4, b-frames", {.codec = "libx264", .b_frames = 3}},
      {"h264 in mp4, open groups",
       {.codec = "libx264", .b_frames = 3, .codec_options = {{"x264-params", "open-gop=1"}}}},
      {"h264 in matroska, open groups",
       {.codec = "libx264",
        .container = "matroska",
        .b_frames = 3,
        .codec_options = {{"x264-params", "open-gop=1"}}}},
      {"h264 in mp4, odd size in 4:4:4",
       {.codec = "libx264", .format = "yuv444p", .width = 67, .height = 45, .b_frames = 3}},
#ifndef __SANITIZE_ADDRESS__  // the encoder, not the decoder, loses a kilobyte
      {"hevc in mp4", {.codec = "libx265", .codec_options = {{"x265-params", "log-level=none"}}}},
#endif
      {"vp8 in webm, hidden frames",
       {.codec = "libvpx",
        .container = "webm",
        .codec_options = {{"auto-alt-ref", "1"}, {"lag-in-frames", "16"}, {"deadline", "good"}}}},
      {"vp9 in webm, hidden frames",
       {.codec = "libvpx-vp9",
        .container = "webm",
        .codec_options = {{"auto-alt-ref", "1"}, {"lag-in-frames", "16"}, {"cpu-used", "8"}}}},
      {"vp9 in mp4", {.codec = "libvpx-vp9", .codec_options = {{"cpu-used", "8"}}}},
  };
  std::erase_if(all, [](const Kind& kind) { return !has_encoder(kind.spec.codec); });
  return all;
}

TEST(VideoReaderTest, EachFrameOfEachKindIsTheOneWithItsNumber) {
  for (const auto& [name, spec] : kinds()) {
    SCOPED_TRACE(name);
    const std::string bytes = encode_video(spec);
    VideoReader video(bytes);
    ASSERT_EQ(video.info().num_frames, spec.num_frames);
    EXPECT_EQ(video.info().width, spec.width);
    EXPECT_EQ(video.info().height, spec.height);
    EXPECT_EQ(video.info().has_audio, spec.with_sound);
    EXPECT_NEAR(video.info().frames_per_second, 25, 0.2);
    EXPECT_NEAR(video.times()[7] - video.times()[0], 7 / 25.0, 0.002);
    const Numbers numbers = all_numbers(video);
    EXPECT_EQ(shown(video, numbers), numbers);
    EXPECT_EQ(video.frames_decoded(), static_cast<std::uint64_t>(spec.num_frames));
  }
}

TEST(VideoReaderTest, AnyOrderGivesThePixelsOfTheWholeInOrder) {
  for (const auto& [name, spec] : kinds()) {
    SCOPED_TRACE(name);
    const std::string bytes = encode_video(spec);
    VideoReader whole(bytes);
    const auto all = read(whole, all_numbers(whole));
    VideoReader video(bytes);
    for (const Numbers& numbers :
         {Numbers{29}, Numbers{12, 3, 3, 28}, Numbers{0}, Numbers{9, 10, 11}, Numbers{20, 19},
          Numbers{19}, Numbers{19, 20}, Numbers{21}, Numbers{8}, Numbers{}}) {
      const auto frames = read(video, numbers);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::size_t size = video.frame_bytes();
        EXPECT_EQ(std::memcmp(frames.data() + i * size,
                              all.data() + static_cast<std::size_t>(numbers[i]) * size, size),
                  0)
            << "frame " << numbers[i];
      }
    }
  }
}

TEST(VideoReaderTest, NoMoreThanOneGroupIsDecodedForOneFrame) {
  for (const auto& [name, spec] : kinds()) {
    SCOPED_TRACE(name);
    const std::string bytes = encode_video(spec);
    for (const std::int64_t number : {29, 25, 14, 9, 0}) {
      VideoReader video(bytes);
      read(video, {number});
      // Frames that are shown before a key frame of an open group need the group before it, too.
      EXPECT_LE(video.frames_decoded(), 2U * static_cast<unsigned>(spec.group)) << number;
      if (spec.codec != "libx264" && spec.codec != "libx265") {
        // One more where the container does not know the frames' size.
        EXPECT_LE(video.frames_decoded(), static_cast<std::uint64_t>(spec.group) + 1) << number;
      }
    }
  }
}

TEST(VideoReaderTest, WhatFollowsTheLastFrameIsDecodedWithoutSeeking) {
  const std::string bytes = encode_video({.group = 30});
  VideoReader video(bytes);
  read(video, {5});
  EXPECT_EQ(video.frames_decoded(), 6U);
  read(video, {5});
  EXPECT_EQ(video.frames_decoded(), 6U);
  read(video, {8, 6});
  EXPECT_EQ(video.frames_decoded(), 9U);
  read(video, {7});
  EXPECT_EQ(video.frames_decoded(), 17U);
}

TEST(VideoReaderTest, ARangeTakesEachStepthFrame) {
  const std::string bytes = encode_video({});
  VideoReader video(bytes);
  const VideoReader::Range range{.begin = 3, .end = 12, .step = 4};
  EXPECT_EQ(range.size(), 3);
  std::vector<std::uint8_t> frames(3 * video.frame_bytes());
  video.read(range, frames);
  EXPECT_EQ(frames, read(video, {3, 7, 11}));
  EXPECT_EQ((VideoReader::Range{.begin = 3, .end = 11, .step = 4}).size(), 2);
  EXPECT_EQ((VideoReader::Range{.begin = 3, .end = 3}).size(), 0);
  EXPECT_EQ((VideoReader::Range{.begin = 4, .end = 3}).size(), 0);
  EXPECT_EQ((VideoReader::Range{.begin = 3, .end = 9, .step = 0}).size(), 0);
  EXPECT_EQ((VideoReader::Range{.begin = 3, .end = 9, .step = -2}).size(), 0);
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const VideoReader::Range& wrong : {VideoReader::Range{.begin = -1, .end = 4},
                                          VideoReader::Range{.begin = -kMost - 1, .end = kMost},
                                          VideoReader::Range{.begin = 3, .end = kMost}}) {
    EXPECT_EQ(test::error_code([&] { video.read(wrong, frames); }), ErrorCode::kOutOfRange);
  }
}

// --------------------------------------------------------------------------- containers that err

/// Without this table of an MP4: readers pass over boxes that they do not know.
std::string without_box(std::string mp4, const std::string& box) {
  const std::size_t at = mp4.find(box);
  if (at == mp4.npos) throw std::runtime_error("there is no " + box);
  return mp4.replace(at, 4, "skip");
}

/// Where the blocks of a Matroska without sound have their times, in two bytes, and then flags.
std::vector<std::size_t> block_times(const std::string& matroska, int num_frames) {
  std::vector<std::size_t> result;
  for (std::size_t at = matroska.find('\xA3'); at != matroska.npos;
       at = matroska.find('\xA3', at + 1)) {
    const auto width =
        static_cast<std::size_t>(std::countl_zero(static_cast<std::uint8_t>(matroska[at + 1])) + 1);
    // A SimpleBlock of track 1.
    if (at + width + 5 > matroska.size() || matroska[at + 1 + width] != '\x81') continue;
    if ((static_cast<unsigned char>(matroska[at + width + 4]) & 0x7F) != 0) continue;
    result.push_back(at + width + 2);
  }
  if (result.size() != static_cast<std::size_t>(num_frames)) {
    throw std::runtime_error("blocks were not found");
  }
  return result;
}

/// With all packets of a Matroska without sound called key frames.
std::string with_all_keys(std::string matroska, int num_frames) {
  for (const std::size_t at : block_times(matroska, num_frames)) matroska[at + 2] = '\x80';
  return matroska;
}

/// With the time of one packet of a Matroska without sound changed.
std::string with_time_moved(std::string matroska, int num_frames, std::size_t packet, int by_ms) {
  const std::size_t at = block_times(matroska, num_frames).at(packet);
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(matroska[i]); };
  const auto time = static_cast<std::uint16_t>((byte(at) << 8 | byte(at + 1)) + by_ms);
  matroska[at] = static_cast<char>(time >> 8);
  matroska[at + 1] = static_cast<char>(time & 0xFF);
  return matroska;
}

/// Reads each frame by itself, in no order, and compares it with `expected`, all in order.
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

/// The same without what is given: each frame is that of the first time, or refused. Returns how
/// many frames there are, and how many of them were read at least once.
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
    if (!has_encoder(codec)) continue;
#ifdef __SANITIZE_ADDRESS__  // the encoder loses a kilobyte
    if (std::string_view(codec) == "libx265") continue;
#endif
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
  if (!has_encoder("libx264")) GTEST_SKIP() << "no H.264";
  for (const char* container : {"mp4", "matroska"}) {
    const std::string bytes =
        encode_video({.codec = "libx264",
                      .container = container,
                      .moves = true,
                      .codec_options = {{"x264-params", "intra-refresh=1:keyint=8:bframes=0"}}});
    expect_any_order(bytes, read_all(bytes));
  }
}

/// Without some packets of a Matroska without sound: their blocks become ones that readers pass
/// over.
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
    if (!has_encoder(codec)) continue;
#ifdef __SANITIZE_ADDRESS__  // the encoder loses a kilobyte
    if (std::string_view(codec) == "libx265") continue;
#endif
    VideoSpec spec{.codec = codec, .container = "matroska", .num_frames = 40, .moves = true};
    if (spec.codec == "libx265") {
      spec.codec_options = {{"x265-params", "log-level=none:bframes=2:keyint=10"}};
    }
    if (spec.codec == "libx264") spec.b_frames = 2;
    if (spec.codec.starts_with("libvpx")) {
      spec.codec_options = {{"deadline", "realtime"}, {"auto-alt-ref", "0"}, {"cpu-used", "4"}};
      spec.width = 96;
      spec.height = 64;
      // VP8 then ends early: what one bit stands for is told by the frames before.
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
    if (!has_encoder(codec)) continue;
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
    if (!has_encoder(codec)) continue;
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

/// An MP4 with other numbers in its edit list: `change` gets the duration in the file's units and
/// the beginning in the track's.
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

/// An MP4 whose edit list ends behind half of its frames.
std::string with_half_of_edit(const std::string& mp4) {
  return with_edit(mp4, [](std::uint32_t& duration, std::uint32_t&) { duration /= 2; });
}

TEST(VideoReaderTest, FramesThatAnEditListLeavesOutAreNoneAndOfMpeg1Refused) {
  for (const char* codec : {"mpeg4", "mpeg2video", "libx264", "mjpeg", "mpeg1video"}) {
    if (!has_encoder(codec)) continue;
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
                  HasSubstr("its edit list leaves out frames, and of MPEG-1 FFmpeg leaves out"));
      continue;
    }
    const Numbers first = all_numbers(VideoReader(half));
    EXPECT_EQ(first.size(), 20U);
    VideoReader video(whole);
    expect_any_order(half, read(video, first));
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
                        // The frames of no key frame.
                        Case{"mpeg4", 10, 0, 8, 220}, Case{"libx264", 10, 0, 8, 220},
                        Case{"mpeg4", 10, 0, 15, -220}, Case{"mpeg4", 10, 2, 18, 420},
                        Case{"libx264", 10, 0, 15, -220}, Case{"libvpx-vp9", 10, 0, 5, 60}}) {
    if (!has_encoder(c.codec)) continue;
#ifdef __SANITIZE_ADDRESS__  // the encoder loses a kilobyte
    if (std::string_view(c.codec) == "libx265") continue;
#endif
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
    if (!has_encoder(codec)) continue;
#ifdef __SANITIZE_ADDRESS__  // the encoder loses a kilobyte
    if (std::string_view(codec) == "libx265") continue;
#endif
    SCOPED_TRACE(testing::Message() << codec << ", " << b_frames);
    VideoSpec spec{.codec = codec, .container = "matroska", .b_frames = b_frames, .moves = true};
    if (spec.codec == "libx265") {
      spec.codec_options = {{"x265-params", "log-level=none:bframes=2:keyint=10:open-gop=1"}};
    }
    const std::string bytes = encode_video(spec);
    EXPECT_EQ(VideoReader(bytes).info().num_frames, 30);
    const std::vector<std::size_t> places = block_times(bytes, spec.num_frames);
    const auto time = [&](std::size_t packet) {
      const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
      return byte(places[packet]) << 8 | byte(places[packet] + 1);
    };
    std::size_t key = 5;
    while ((bytes[places.at(key) + 2] & '\x80') == 0) ++key;
    std::size_t behind = key + 1;
    while (time(behind) < time(key)) ++behind;
    const std::string moved =
        with_time_moved(bytes, spec.num_frames, behind, time(key) - 20 - time(behind));
    EXPECT_THAT(test::error_text([&] { VideoReader{moved}; }), HasSubstr("do not ascend"));
  }
}

/// Reads each frame alone, and some in no order: each is that of the sequence, or is refused.
/// Returns how many were read.
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
    if (!has_encoder(codec)) continue;
#ifdef __SANITIZE_ADDRESS__  // the encoder loses a kilobyte
    if (std::string_view(codec) == "libx265") continue;
#endif
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
    const auto time = [&](std::size_t packet) {  // in its cluster, which a key frame may begin
      const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
      return static_cast<std::int16_t>(byte(places[packet]) << 8 | byte(places[packet] + 1));
    };
    std::size_t key = 5;
    while ((bytes[places.at(key) + 2] & '\x80') == 0) ++key;
    std::size_t last = key;  // of those that it follows
    while (time(last + 1) < time(key)) ++last;
    ASSERT_GT(last, key);
    const std::string moved =
        with_time_moved(bytes, spec.num_frames, last, time(key) + 10 - time(last));
    EXPECT_GE(expect_equal_or_refused(moved, read_all(bytes)), 5U);
  }
}

TEST(VideoReaderTest, WithoutTheFrameThatOthersBehindAKeyFrameNeedNoneHasAnothersNumber) {
  for (const char* codec : {"mpeg1video", "mpeg2video"}) {
    if (!has_encoder(codec)) continue;
    const std::string whole =
        encode_video({.codec = codec, .container = "matroska", .num_frames = 40, .b_frames = 2});
    const auto time_of = [&](std::size_t packet) {
      const std::size_t at = block_times(whole, 40).at(packet);
      return static_cast<unsigned char>(whole[at]) << 8 | static_cast<unsigned char>(whole[at + 1]);
    };
    for (std::size_t lost = 8; lost < 32; ++lost) {
      SCOPED_TRACE(testing::Message() << codec << ", lost: " << lost);
      // A decoder keeps a frame that others are predicted from until the next such one comes.
      std::vector<std::pair<int, bool>> sequence;  // times; whether the decoder kept it
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
  if (!has_encoder("libx264")) GTEST_SKIP() << "no H.264";
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

/// With other bytes, as many, in place of these from the middle of the file on.
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
  // The encoder that MPEG-4 names decides how it is decoded.
  const std::string mpeg4 = encode_video({.container = "matroska",
                                          .moves = true,
                                          .codec_options = {{"flags", "-global_header-bitexact"}}});
  const std::string by_another = with_other_half(mpeg4, "Lavc", "XviD0069 ");
  expect_any_order(by_another, read_all(by_another));
  // Behind a header with pixels of another shape, a decoder of MPEG-2 begins anew.
  if (!has_encoder("mpeg2video")) GTEST_SKIP() << "no MPEG-2";
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

// ------------------------------------------------------------------------------------------ times

TEST(VideoReaderTest, TimesAreTheContainersAlsoWhereTheyAreUneven) {
  for (const char* container : {"mp4", "matroska"}) {
    SCOPED_TRACE(container);
    const std::string bytes = encode_video({.codec = "mjpeg",
                                            .container = container,
                                            .format = "yuvj420p",
                                            .num_frames = 6,
                                            .times = {250, 300, 1000, 1100, 1125, 5000}});
    VideoReader video(bytes);
    const double offset = video.times()[0];  // MP4's edit list may begin at the first frame
    const std::vector<double> expected = {0, 0.02, 0.3, 0.34, 0.35, 1.9};
    ASSERT_EQ(video.times().size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(video.times()[i] - offset, expected[i], 0.0011) << i;
    }
    EXPECT_EQ(shown(video, all_numbers(video)), all_numbers(video));
    EXPECT_EQ(video.frame_at(offset + 1.0), 4);
    EXPECT_EQ(video.frame_at(video.times()[3]), 3);
    EXPECT_EQ(video.frame_at(offset), 0);
    EXPECT_EQ(test::error_code([&] { video.frame_at(offset - 0.01); }), ErrorCode::kOutOfRange);
    EXPECT_EQ(test::error_code([&] { video.frame_at(video.info().end_seconds); }),
              ErrorCode::kOutOfRange);
    EXPECT_EQ(test::error_code([&] { video.frame_at(std::nan("")); }), ErrorCode::kOutOfRange);
    const auto range = video.frames_in(video.times()[1], video.times()[4]);
    EXPECT_EQ(range.begin, 1);
    EXPECT_EQ(range.end, 4);
    EXPECT_EQ(video.frames_in(-1e9, 1e9).size(), 6);
    EXPECT_EQ(video.frames_in(offset + 0.5, offset + 0.6).size(), 0);
    EXPECT_EQ(video.frames_in(9, 1).size(), 0);
  }
}

TEST(VideoReaderTest, OneFrameThatAnEditListLeavesHasItsTime) {
  for (const int b_frames : {0, 2}) {
    SCOPED_TRACE(b_frames);
    const std::string whole = encode_video({.codec = "mpeg4", .b_frames = b_frames});
    VideoReader all(whole);
    const double scale = 12800;  // of a track of 25 frames a second
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

TEST(VideoReaderTest, AFirstTimeOtherThanZeroIsKept) {
  std::vector<std::int64_t> times;
  for (int i = 0; i < 30; ++i) times.push_back(100 * (i + 50));
  const std::string bytes = encode_video({.container = "matroska", .times = times});
  VideoReader video(bytes);
  EXPECT_NEAR(video.info().begin_seconds, 2.0, 0.001);
  EXPECT_NEAR(video.info().end_seconds, 3.2, 0.001);
  EXPECT_EQ(shown(video, {video.frame_at(2.5)}), Numbers{12});
}

// ----------------------------------------------------------------------------------------- colours

/// RGB of Y, U, V by the definition.
std::array<double, 3> rgb_of(const std::vector<int>& yuv, double kr, double kb, bool full_range) {
  const double y = full_range ? yuv[0] : (yuv[0] - 16) * 255 / 219.0;
  const double scale = full_range ? 1 : 255 / 224.0;
  const double cb = (yuv[1] - 128) * scale;
  const double cr = (yuv[2] - 128) * scale;
  const double kg = 1 - kr - kb;
  return {y + 2 * (1 - kr) * cr, y - 2 * (1 - kb) * kb / kg * cb - 2 * (1 - kr) * kr / kg * cr,
          y + 2 * (1 - kb) * cb};
}

TEST(VideoReaderTest, TheMatrixAndRangeThatAStreamNamesAreUsed) {
  if (!has_encoder("libx264")) GTEST_SKIP() << "no encoder that writes a matrix";
  const std::vector<int> color = {120, 100, 160};
  struct Case {
    int matrix;
    double kr, kb;
  };
  for (const auto& c : {Case{1, 0.2126, 0.0722}, Case{6, 0.299, 0.114}, Case{9, 0.2627, 0.0593},
                        Case{2, 0.299, 0.114}}) {
    for (const bool full_range : {false, true}) {
      for (const auto& [format, width] : std::vector<std::pair<const char*, int>>{
               {"yuv420p", 64}, {"yuv420p", 66}, {"yuv444p", 64}, {"yuv444p", 67}}) {
        const std::string bytes = encode_video({.codec = "libx264",
                                                .format = format,
                                                .width = width,
                                                .num_frames = 4,
                                                .matrix = c.matrix,
                                                .full_range = full_range,
                                                .color = color});
        VideoReader video(bytes);
        const auto pixels = read(video, all_numbers(video));
        const auto expected = rgb_of(color, c.kr, c.kb, full_range);
        for (std::size_t i = 0; i < pixels.size(); ++i) {
          ASSERT_NEAR(pixels[i], expected[i % 3], 3)
              << "matrix " << c.matrix << ", full range " << full_range << ", byte " << i;
        }
      }
    }
  }
}

TEST(VideoReaderTest, RgbOfMoreThanEightBitsKeepsItsLight) {
  if (!has_encoder("ffv1")) GTEST_SKIP() << "this libavcodec has no encoder for FFV1";
  for (const char* format : {"gbrp10le", "bgr0"}) {
    const std::string bytes =
        encode_video({.codec = "ffv1", .container = "matroska", .format = format});
    VideoReader video(bytes);
    for (const int value : read(video, all_numbers(video))) {
      ASSERT_LE(std::min(std::abs(value - 16), std::abs(value - 235)), 1) << format << " " << value;
    }
  }
}

TEST(VideoReaderTest, WhereTheMemoryLiesDoesNotChangeThePixels) {
  for (const int width : {64, 67, 96, 128}) {
    const std::string bytes =
        encode_video({.width = width, .num_frames = 3, .color = {90, 80, 190}});
    VideoReader video(bytes);
    const auto expected = read(video, {0, 1, 2});
    for (std::size_t shift = 1; shift < 70; shift += 3) {
      // What lies around the frames must stay.
      std::vector<std::uint8_t> memory(expected.size() + 2 * shift, 0xA5);
      video.read(Numbers{0, 1, 2}, std::span(memory).subspan(shift, expected.size()));
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                             memory.begin() + static_cast<std::ptrdiff_t>(shift)));
      EXPECT_EQ(
          std::count(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(shift), 0xA5),
          static_cast<std::ptrdiff_t>(shift));
      EXPECT_EQ(std::count(memory.end() - static_cast<std::ptrdiff_t>(shift), memory.end(), 0xA5),
                static_cast<std::ptrdiff_t>(shift));
    }
  }
}

TEST(VideoReaderTest, FramesAreTurnedAsTheDisplayMatrixAsks) {
  constexpr int kWidth = 64;
  constexpr int kHeight = 48;
  const auto spec_of = [](std::vector<int> turn) {
    VideoSpec spec{.width = kWidth, .height = kHeight, .num_frames = 20};
    spec.turn = std::move(turn);
    return spec;
  };
  const std::string plain_bytes = encode_video(spec_of({}));
  VideoReader plain(plain_bytes);
  const auto from = read(plain, {19});
  // A pixel at (x, y) goes to (a x + c y, b x + d y), moved so that all are in the picture.
  for (const std::vector<int>& turn :
       {std::vector<int>{1, 0, 0, 1}, {0, 1, -1, 0}, {-1, 0, 0, -1}, {0, -1, 1, 0}}) {
    const std::string bytes = encode_video(spec_of(turn));
    VideoReader video(bytes);
    const bool swaps = turn[0] == 0;
    ASSERT_EQ(video.info().width, swaps ? kHeight : kWidth);
    ASSERT_EQ(video.info().height, swaps ? kWidth : kHeight);
    const auto to = read(video, {19});
    int different = 0;
    for (int y = 0; y < kHeight; ++y) {
      for (int x = 0; x < kWidth; ++x) {
        int to_x = turn[0] * x + turn[2] * y;
        int to_y = turn[1] * x + turn[3] * y;
        if (turn[0] < 0) to_x += kWidth - 1;
        if (turn[2] < 0) to_x += kHeight - 1;
        if (turn[1] < 0) to_y += kWidth - 1;
        if (turn[3] < 0) to_y += kHeight - 1;
        const auto at =
            static_cast<std::size_t>(to_y * static_cast<int>(video.info().width) + to_x);
        different += to[3 * at] != from[static_cast<std::size_t>(3 * (y * kWidth + x))] ? 1 : 0;
      }
    }
    EXPECT_EQ(different, 0) << turn[0] << turn[1] << turn[2] << turn[3];
  }
  for (const std::vector<int>& turn :
       {std::vector<int>{1, 1, -1, 1}, {1, 1, 0, 1}, {1, 0, 1, 1}, {0, 1, -1, 1}}) {
    const std::string bytes = encode_video(spec_of(turn));
    EXPECT_THAT(test::error_text([&] { VideoReader{bytes}; }),
                HasSubstr("asks for a turn that is not by quarters"));
  }
}

// ---------------------------------------------------------------------------------- errors,
// threads

TEST(VideoReaderTest, WhatACallerAsksForIsChecked) {
  const std::string bytes = encode_video({});
  VideoReader video(bytes, {.where = "clips.tar, sample 7"});
  std::vector<std::uint8_t> frame(video.frame_bytes());
  EXPECT_EQ(test::error_text([&] { video.read(Numbers{30}, frame); }),
            "the video has no frame 30: clips.tar, sample 7; choose frames in [0, 30)");
  EXPECT_EQ(test::error_code([&] { video.read(Numbers{-1}, frame); }), ErrorCode::kOutOfRange);
  EXPECT_EQ(test::error_code([&] {
              video.read(Numbers{1, 2}, frame);
            }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { video.read({.begin = 0, .end = 1, .step = 0}, frame); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { video.read({.begin = 30, .end = 31}, frame); }),
            ErrorCode::kOutOfRange);
  EXPECT_EQ(shown(video, {30 - 1}), Numbers{29});
}

TEST(VideoReaderTest, LimitsAreKeptBeforeMemoryIsTaken) {
  const std::string bytes = encode_video({});
  EXPECT_EQ(test::error_text([&] { VideoReader(bytes, {.where = "here", .max_pixels = 3071}); }),
            "the video cannot be read (48x64 (HxW) is more than the limit of 3071 pixels): here; "
            "mend the member, or leave the sample out");
  EXPECT_NO_THROW(VideoReader(bytes, {.max_pixels = 3072}));
  EXPECT_THAT(test::error_text([&] { VideoReader(bytes, {.max_frames = 29}); }),
              HasSubstr("more frames than the limit of 29"));
  EXPECT_NO_THROW(VideoReader(bytes, {.max_frames = 30}));
}

TEST(VideoReaderTest, WhatIsNoVideoIsABadField) {
  const auto reason = [](std::string_view bytes) {
    return test::error_text([&] { VideoReader video(bytes); });
  };
  EXPECT_THAT(reason(""), HasSubstr("it is empty"));
  EXPECT_THAT(reason("#EXTM3U\nfile:///etc/passwd\n"), HasSubstr("by its first bytes"));
  EXPECT_THAT(reason("ffconcat version 1.0\nfile 'a.mp4'\n"), HasSubstr("by its first bytes"));
  EXPECT_THAT(reason(fuzz::encode_sound({.codec = "pcm_s16le", .container = "wav"})),
              HasSubstr("it has no video"));
}

TEST(VideoReaderTest, EveryCutIsRefused) {
  for (const VideoSpec& spec :
       {VideoSpec{.num_frames = 3}, VideoSpec{.container = "matroska", .num_frames = 3}}) {
    const std::string bytes = encode_video(spec);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      // A copy of its own, so that reading past its end is seen by sanitizers.
      const std::vector<char> part(bytes.begin(),
                                   bytes.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(
          test::error_code([&] { VideoReader video(std::string_view(part.data(), part.size())); }),
          ErrorCode::kBadField)
          << size << " of " << bytes.size() << " bytes";
    }
  }
}

TEST(VideoReaderTest, NoFlippedByteDoesWorseThanAnError) {
  std::mt19937_64 random(test::random_seed());
  for (const VideoSpec& spec :
       {VideoSpec{.num_frames = 8, .group = 4, .b_frames = 2},
        VideoSpec{.container = "matroska", .num_frames = 8, .group = 4, .with_sound = true}}) {
    const std::string good = encode_video(spec);
    int refused = 0;
    for (int i = 0; i < 500; ++i) {
      std::string bad = good;
      const std::size_t at = random() % bad.size();
      bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
      try {
        VideoReader video(bad, {.max_pixels = 1 << 16});
        read(video, {video.info().num_frames - 1, 0});
      } catch (const BadField&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 0);
  }
}

/// Where the parts of an element of Matroska lie: identifier, size, what it holds.
struct Element {
  std::size_t begin, size_begin, content, end;
};

/// The elements in [at, end).
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
  // Streams whose writers did not know the sizes of segment, or of segment and clusters.
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
    // A wrong size can hide the next cluster's beginning, where no cluster says where it ends.
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

TEST(VideoReaderTest, WhatOthersPutBehindAVideoIsNoDamage) {
  for (const VideoSpec& spec :
       {VideoSpec{}, VideoSpec{.container = "mov"}, VideoSpec{.container = "matroska"},
        VideoSpec{.container = "matroska", .muxer_options = {{"live", "1"}}},
        VideoSpec{.muxer_options = {{"movflags", "frag_keyframe+empty_moov"}}}}) {
    const std::string bytes = encode_video(spec);
    VideoReader without(bytes);
    const std::vector<std::uint8_t> last = read(without, std::vector<std::int64_t>{29});
    for (const std::string& tail : test::tails()) {
      SCOPED_TRACE(spec.container + " and " + testing::PrintToString(tail.substr(0, 20)));
      const std::string longer = bytes + tail;
      VideoReader video(longer);
      EXPECT_EQ(video.info().num_frames, 30);
      EXPECT_EQ(read(video, std::vector<std::int64_t>{29}), last);
    }
    // Not what might have been frames.
    if (spec.container == "matroska" && spec.muxer_options.empty()) continue;
    EXPECT_THAT(test::error_text([&] { VideoReader video(bytes + std::string(50, '\x81')); }),
                testing::ContainsRegex("Matroska: an element is damaged|last one is no tag"));
  }
}

TEST(VideoReaderTest, PromisesThatTheBytesCannotKeepAreRefused) {
  std::string bytes = encode_video({.num_frames = 3});
  const std::size_t sizes = bytes.find("stsz");
  ASSERT_NE(sizes, std::string::npos);
  bytes.replace(sizes + 8, 8,
                std::string("\0\0\0\1\x7F\xFF\xFF\xFF", 8));  // samples of one byte each
  EXPECT_THAT(test::error_text([&] { VideoReader video(bytes); }),
              HasSubstr("it promises 2147483647 samples in"));
}

TEST(VideoReaderTest, AReaderGoesOnAfterADamagedFrame) {
  if (!has_encoder("libx264")) GTEST_SKIP() << "no H.264";
  const std::string good = encode_video({.codec = "libx264"});
  std::string bad = good;
  const std::size_t media = bad.find("mdat");
  const std::size_t tables = bad.find("moov");
  ASSERT_LT(media, tables);
  std::fill_n(bad.begin() + static_cast<std::ptrdiff_t>(media + (tables - media) / 2), 40, '\xFF');
  VideoReader whole(good);
  VideoReader video(bad);
  std::set<std::int64_t> damaged_groups;
  int equal = 0;
  for (const bool backwards : {false, true}) {
    for (std::int64_t i = 0; i < 30; ++i) {
      const std::int64_t number = backwards ? 29 - i : i;
      try {
        equal += read(video, {number}) == read(whole, {number}) ? 1 : 0;
      } catch (const BadField&) {
        damaged_groups.insert(number / 10);
      }
    }
  }
  EXPECT_EQ(damaged_groups.size(), 1U);
  EXPECT_GE(equal, 40);  // all frames of the other groups, twice
}

TEST(VideoReaderTest, NothingIsPrinted) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  std::string bytes = encode_video({.num_frames = 8});
  std::fill(bytes.begin() + 200, bytes.begin() + 900, '\x55');
  EXPECT_THROW(
      {
        VideoReader video(bytes);
        read(video, all_numbers(video));
      },
      BadField);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(VideoThreadsTest, ReadersOfOneFileRunAtOnce) {
  const std::string bytes = encode_video({.b_frames = 2});
  VideoReader alone(bytes);
  const auto expected = read(alone, {29, 3, 15});
  std::vector<std::thread> threads;
  std::atomic<int> different = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        VideoReader video(bytes);
        if (read(video, {29, 3, 15}) != expected) ++different;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace shardwise
