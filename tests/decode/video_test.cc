#include "shardwise/decode/video_reader.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "decode/media_tails.h"
#include "decode/video_frames.h"
#include "media_bytes.h"
#include "shardwise/base/error.h"
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

// ------------------------------------------------------------------ a video by other authors

std::optional<std::filesystem::path> media_dir() {
  const auto corpus = test::corpus_dir();
  if (!corpus) return std::nullopt;
  return *corpus / "corpus" / "media";
}

/// Returns the pixels of a given frame, [H, W, 3], from the file of a saved tensor. The file is an
/// archive of uncompressed members.
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
  if (!media)
    GTEST_SKIP() << "needs the corpus; skipped because SHARDWISE_CORPUS does not name its folder";
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
  if (!media)
    GTEST_SKIP() << "needs the corpus; skipped because SHARDWISE_CORPUS does not name its folder";
  const std::string bytes = test::read_file(*media / "nasa_13013.mp4");
  VideoReader video(bytes);
  const std::int64_t end = video.info().num_frames;
  std::vector<std::uint8_t> frames(10 * video.frame_bytes());
  video.read({.begin = end - 10, .end = end}, frames);
  // At most the longest group of frames that libx264 makes by default (250), and not the whole
  // video.
  EXPECT_LE(video.frames_decoded(), 250U);
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

/// Returns the kinds that this libavcodec can encode.
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
      {"hevc in mp4", {.codec = "libx265", .codec_options = {{"x265-params", "log-level=none"}}}},
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
  std::erase_if(all, [](const Kind& kind) { return !can_encode(kind.spec.codec); });
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
      // Frames shown before the key frame of an open group also need the previous group.
      EXPECT_LE(video.frames_decoded(), 2U * static_cast<unsigned>(spec.group)) << number;
      if (spec.codec != "libx264" && spec.codec != "libx265") {
        // Allow one more frame if the container does not state the size of the frames.
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
    const double offset = video.times()[0];  // an MP4's edit list may shift the first frame to 0
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

/// Returns the RGB values of Y, U, V by the definition.
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
  if (!can_encode("libx264"))
    GTEST_SKIP() << "needs an encoder for H.264; skipped because this libavcodec has none";
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
  if (!can_encode("ffv1"))
    GTEST_SKIP() << "needs an encoder for FFV1; skipped because this libavcodec has none";
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
      // Bytes around the frames must not change.
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
  // A pixel at (x, y) is moved to (a x + c y, b x + d y), and the result is shifted into the
  // picture.
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
    EXPECT_THAT(test::error_text([&] { VideoReader{bytes}; }), HasSubstr("90 degrees"));
  }
}

// --------------------------------------------------------------------------------- errors, threads

TEST(VideoReaderTest, WhatACallerAsksForIsChecked) {
  const std::string bytes = encode_video({});
  VideoReader video(bytes, {.where = "clips.tar, sample 7"});
  std::vector<std::uint8_t> frame(video.frame_bytes());
  EXPECT_THAT(test::error_text([&] { video.read(Numbers{30}, frame); }),
              testing::AllOf(HasSubstr("no frame 30"), HasSubstr("clips.tar, sample 7"),
                             HasSubstr("[0, 30)")));
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
  EXPECT_THAT(test::error_text([&] { VideoReader(bytes, {.where = "here", .max_pixels = 3071}); }),
              testing::AllOf(HasSubstr("cannot be read"), HasSubstr("48x64 (HxW)"),
                             HasSubstr("limit of 3,071 pixels"), HasSubstr("): here; "),
                             HasSubstr("leave the sample out")));
  EXPECT_NO_THROW(VideoReader(bytes, {.max_pixels = 3072}));
  EXPECT_THAT(test::error_text([&] { VideoReader(bytes, {.max_frames = 29}); }),
              HasSubstr("limit of 29"));
  EXPECT_NO_THROW(VideoReader(bytes, {.max_frames = 30}));
}

TEST(VideoReaderTest, WhatIsNoVideoIsABadField) {
  const auto reason = [](std::string_view bytes) {
    return test::error_text([&] { VideoReader video(bytes); });
  };
  EXPECT_THAT(reason(""), HasSubstr("is empty"));
  EXPECT_THAT(reason("#EXTM3U\nfile:///etc/passwd\n"), HasSubstr("first bytes"));
  EXPECT_THAT(reason("ffconcat version 1.0\nfile 'a.mp4'\n"), HasSubstr("first bytes"));
  EXPECT_THAT(reason(fuzz::encode_sound({.codec = "pcm_s16le", .container = "wav"})),
              HasSubstr("no video track"));
}

TEST(VideoReaderTest, EveryCutIsRefused) {
  for (const VideoSpec& spec :
       {VideoSpec{.num_frames = 3}, VideoSpec{.container = "matroska", .num_frames = 3}}) {
    const std::string bytes = encode_video(spec);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      // Use a copy, so that sanitizers detect reads past the end.
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
    // Bytes that may be frames are not accepted as a tail.
    if (spec.container == "matroska" && spec.muxer_options.empty()) continue;
    EXPECT_THAT(test::error_text([&] { VideoReader video(bytes + std::string(50, '\x81')); }),
                testing::ContainsRegex("element is damaged|not a tag"));
  }
}

TEST(VideoReaderTest, PromisesThatTheBytesCannotKeepAreRefused) {
  std::string bytes = encode_video({.num_frames = 3});
  const std::size_t sizes = bytes.find("stsz");
  ASSERT_NE(sizes, std::string::npos);
  bytes.replace(sizes + 8, 8,
                std::string("\0\0\0\1\x7F\xFF\xFF\xFF", 8));  // samples of one byte each
  EXPECT_THAT(test::error_text([&] { VideoReader video(bytes); }),
              HasSubstr("2,147,483,647 samples"));
}

TEST(VideoReaderTest, AReaderGoesOnAfterADamagedFrame) {
  if (!can_encode("libx264"))
    GTEST_SKIP() << "needs an encoder for H.264; skipped because this libavcodec has none";
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
  EXPECT_GE(equal, 40);  // all frames of the other groups, each read twice
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
