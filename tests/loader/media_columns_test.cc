#include "shardwise/loader/media_columns.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory_resource>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "compressed_bytes.h"
#include "decode/decode_failure.h"
#include "loader/agreed_options.h"
#include "loader/media/clip.h"
#include "loader/one_batch.h"
#include "loader/thread_ranks.h"
#include "loader/transform.h"
#include "media_bytes.h"
#include "shardwise/decode/audio_reader.h"
#include "shardwise/decode/video_reader.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sample_key.h"
#include "support/dataset.h"
#include "support/python.h"
#include "support/says.h"

namespace shardwise {
namespace {

using fuzz::encode_sound;
using fuzz::encode_video;
using fuzz::has_encoder;
using testing::ElementsAre;
using testing::HasSubstr;

using ClipStart = Column::ClipStart;
using Numbers = std::vector<std::int64_t>;
constexpr std::uint64_t kSeed = 23;
constexpr auto kLast = ImageTransform::Layout::kChannelsLast;

/// Makes videos of 13 to 30 frames, and sounds of 0.4 s and more.
std::vector<test::Fields> make_media(int count) {
  std::vector<test::Fields> samples;
  for (int i = 0; i < count; ++i) {
    samples.push_back(
        {{"mp4",
          encode_video({.width = 32 + 16 * (i % 3), .height = 48, .num_frames = 13 + i % 18})},
         {"flac", encode_sound({.channels = 1 + i % 2, .num_samples = 3200 + 700 * i})}});
  }
  return samples;
}

std::string bytes_of(const test::Fields& sample, const std::string& field) {
  for (const auto& [name, bytes] : sample) {
    if (name == field) return bytes;
  }
  return {};
}

Batch one_batch(const Dataset& data, std::vector<Column> columns) {
  return test::one_batch(data, std::move(columns), {.order = {.seed = kSeed}});
}

std::string error_of(const Dataset& data, const Column& column) {
  return test::error_text([&] { one_batch(data, {column}); });
}

std::vector<std::uint8_t> frames_of(VideoReader& video, const Numbers& numbers) {
  std::vector<std::uint8_t> frames(numbers.size() * video.frame_bytes());
  video.read(numbers, frames);
  return frames;
}

// ---------------------------------------------------------------------------------- which frames

Numbers clip(std::int64_t size, const Column::VideoClip& clip, std::uint64_t sample = 0) {
  std::vector<double> times(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<double>(i) / 10;
  return detail::clip_frames(times, clip, sample_key(kSeed, 0, sample));
}

/// Returns the error's text if there is no such clip.
std::string refusal(std::int64_t size, const Column::VideoClip& wanted) {
  try {
    clip(size, wanted);
  } catch (const detail::DecodeFailure& failure) {
    return failure.what();
  }
  return {};
}

TEST(MediaColumnTest, RanksMustHaveEveryOptionOfAClipAlike) {
  std::vector<Column> columns;
  const auto add_video = [&](auto&& change) {
    Column::VideoClip clip{.every = 1};
    change(clip);
    columns.push_back(columns::video("mp4", clip));
    columns.push_back(columns::video_times("mp4", clip));
  };
  add_video([](auto&) {});
  add_video([](auto& clip) { clip.frames = 3; });
  add_video([](auto& clip) { clip.every = 3; });
  add_video([](auto& clip) { clip.start = ClipStart::kRandom; });
  add_video([](auto& clip) { clip.begin_seconds = 1; });
  add_video([](auto& clip) { clip.end_seconds = 1; });
  add_video([](auto& clip) { clip.refuse_short = true; });
  add_video([](auto& clip) { clip.max_pixels = 9; });
  add_video([](auto& clip) { clip.max_frames = 99; });
  columns.push_back(columns::video("mkv", {}));
  columns.push_back(columns::video("mp4", {}, {.horizontal_flip = 0.5}));
  const auto add_audio = [&](auto&& change) {
    Column::AudioClip clip{.sample_rate = 8000, .channels = 1, .seconds = 1};
    change(clip);
    columns.push_back(columns::audio("wav", clip));
  };
  add_audio([](auto&) {});
  add_audio([](auto& clip) { clip.sample_rate = 8001; });
  add_audio([](auto& clip) { clip.channels = 2; });
  add_audio([](auto& clip) { clip.seconds = 2; });
  add_audio([](auto& clip) { clip.start = ClipStart::kRandom; });
  add_audio([](auto& clip) { clip.begin_seconds = 1; });
  add_audio([](auto& clip) { clip.end_seconds = 9; });
  add_audio([](auto& clip) { clip.fixed_length = true; });
  add_audio([](auto& clip) { clip.max_samples = 9000; });
  std::set<std::string> texts;
  for (const Column& column : columns) {
    std::string text;
    for (const auto& [name, value] : detail::agreed_options({.columns = {column}})) {
      text += name + ": " + value + "\n";
    }
    EXPECT_TRUE(texts.insert(text).second) << text;
  }
}

TEST(ClipTest, FramesAreSpreadEvenly) {
  EXPECT_EQ(clip(10, {.frames = 4}), (Numbers{0, 3, 6, 9}));
  EXPECT_EQ(clip(11, {.frames = 4}), (Numbers{0, 3, 6, 10}));
  EXPECT_EQ(clip(10, {.frames = 1}), (Numbers{0}));
  EXPECT_EQ(clip(10, {.frames = 10}), (Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(clip(3, {.frames = 6}), (Numbers{0, 0, 0, 1, 1, 2}));
  EXPECT_EQ(clip(1, {.frames = 3}), (Numbers{0, 0, 0}));
  EXPECT_EQ(clip(100, {.frames = 3, .begin_seconds = 1, .end_seconds = 2}), (Numbers{10, 14, 19}));
}

TEST(ClipTest, EachKthFrameFromTheStartTheCentreOrAnywhere) {
  EXPECT_EQ(clip(20, {.frames = 3, .every = 4}), (Numbers{0, 4, 8}));
  EXPECT_EQ(clip(20, {.frames = 3, .every = 4, .start = ClipStart::kCentre}), (Numbers{5, 9, 13}));
  EXPECT_EQ(clip(20, {.frames = 3, .every = 4, .begin_seconds = 0.35}), (Numbers{4, 8, 12}));
  std::map<std::int64_t, int> starts;
  for (std::uint64_t sample = 0; sample < 1200; ++sample) {
    const Numbers numbers =
        clip(20, {.frames = 3, .every = 4, .start = ClipStart::kRandom}, sample);
    EXPECT_EQ(numbers[1] - numbers[0], 4);
    EXPECT_EQ(numbers[2] - numbers[1], 4);
    ++starts[numbers[0]];
  }
  ASSERT_EQ(starts.size(), 12u) << "from 0 to 11, so that 9 frames fit into 20";
  EXPECT_EQ(starts.rbegin()->first, 11);
  for (const auto& [start, count] : starts) EXPECT_GT(count, 50) << start;
}

TEST(ClipTest, AShortVideoRepeatsItsLastFrameOrIsRefused) {
  EXPECT_EQ(clip(7, {.frames = 5, .every = 3}), (Numbers{0, 3, 6, 6, 6}));
  EXPECT_EQ(clip(6, {.frames = 4, .every = 4, .start = ClipStart::kRandom}), (Numbers{0, 4, 4, 4}));
  EXPECT_EQ(clip(9, {.frames = 3, .every = 4, .refuse_short = true}), (Numbers{0, 4, 8}));
  EXPECT_THAT(refusal(8, {.frames = 3, .every = 4, .refuse_short = true}),
              test::Says("clip needs 9 frames", "range has 8"));
  EXPECT_THAT(refusal(8, {.frames = 9, .refuse_short = true}),
              test::Says("clip needs 9 frames", "range has 8"));
  EXPECT_THAT(refusal(8, {.frames = 2, .begin_seconds = 5}),
              test::Says("no frame", "[5.000000, inf) s"));
}

// Version 1 of docs/formats/transforms.md. These numbers must never change.
TEST(ClipTest, RandomStartsOfVersionOneStayAsTheyAre) {
  const auto start = [](detail::Operation operation, std::int64_t size, std::int64_t span) {
    return detail::clip_start(size, span, ClipStart::kRandom, sample_key(17, 3, 5), operation);
  };
  const std::int64_t frame = start(detail::Operation::kVideoClip, 300, 61);
  const std::int64_t sound = start(detail::Operation::kAudioClip, 160'000, 16'000);
  EXPECT_EQ(frame, 203);
  EXPECT_EQ(sound, 142'319);
  EXPECT_THAT(test::read_file(test::source_dir() + "/docs/formats/transforms.md"),
              test::Says("of 300 begins at frame " + std::to_string(frame),
                         "of 160,000 at sample " + std::to_string(sound)));
}

TEST(ClipTest, AProgramWrittenFromThePageFindsTheSameFrames) {
  if (!test::has_python()) GTEST_SKIP() << "needs python3; skipped because it is not in PATH";
  using nlohmann::json;
  std::string input;
  std::vector<json> expected;
  for (std::uint64_t sample = 0; sample < 60; ++sample) {
    const auto start = static_cast<ClipStart>(sample % 3);
    const std::int64_t size = 1 + static_cast<std::int64_t>(sample * 7 % 50);
    const std::int64_t frames = 1 + static_cast<std::int64_t>(sample % 6);
    const std::int64_t every = static_cast<std::int64_t>(sample % 4);
    Column::VideoClip one{.frames = frames, .every = every};
    if (every > 0) one.start = start;
    input += json{{"clip",
                   {{"size", size},
                    {"frames", frames},
                    {"every", every},
                    {"start", static_cast<int>(one.start)}}},
                  {"seed", kSeed},
                  {"epoch", 0},
                  {"sample", sample}}
                 .dump() +
             "\n";
    expected.emplace_back(clip(size, one, sample));
  }
  const auto lines = test::run_python("tests/loader/read_transform.py", {}, input);
  ASSERT_EQ(lines.size(), expected.size());
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(json::parse(lines[i]), expected[i]) << i;
}

TEST(ClipTest, WhatCannotBeIsRefusedWhenTheColumnIsMade) {
  const auto video = [](const Column::VideoClip& clip) {
    return test::error_text([&] { columns::video("mp4", clip); });
  };
  EXPECT_THAT(video({.frames = 0}), HasSubstr("frames is 0; choose 1 to 65,536"));
  EXPECT_THAT(video({.every = -1}), HasSubstr("every is -1"));
  EXPECT_THAT(video({.start = ClipStart::kRandom}), test::Says("set every", "leave start out"));
  EXPECT_THAT(video({.begin_seconds = 2, .end_seconds = 2}), HasSubstr("an end after it"));
  EXPECT_ERROR(test::Says("frames is -3"), columns::video_times("mp4", {.frames = -3}));
  EXPECT_ERROR(test::Says("horizontal_flip"), columns::video("mp4", {}, {.horizontal_flip = 2}));
  EXPECT_ERROR(test::Says("can run code"), columns::video("clip.pkl", {}));
  const auto audio = [](const Column::AudioClip& clip) {
    return test::error_text([&] { columns::audio("wav", clip); });
  };
  EXPECT_THAT(audio({.sample_rate = -1}), test::Says("sample rate", "out of range"));
  EXPECT_THAT(audio({.seconds = -1}), HasSubstr("seconds is -1"));
  EXPECT_THAT(audio({.start = ClipStart::kCentre}), test::Says("set seconds", "leave start out"));
  EXPECT_THAT(audio({.seconds = 1, .fixed_length = true}), HasSubstr("set all three"));
  EXPECT_THAT(audio({.sample_rate = 8000,
                     .channels = 1,
                     .seconds = 2,
                     .fixed_length = true,
                     .max_samples = 15'999}),
              HasSubstr("more samples than max_samples = 15999"));
  EXPECT_ERROR(test::Says("can run code"), columns::audio("x.pt", {}));
}

// ---------------------------------------------------------------------------------------- videos

TEST(VideoColumnTest, FramesAndTimesAreThoseOfTheReader) {
  const test::TempDir dir;
  const auto samples = make_media(9);
  const Dataset data = test::make_dataset(dir, "d", samples);
  const Column::VideoClip clip{.frames = 4, .every = 3, .start = ClipStart::kRandom};
  const ImageTransform cut{.centre_crop = {48, 32}, .layout = kLast};
  const Batch batch =
      one_batch(data, {columns::video("mp4", clip, cut), columns::video_times("mp4", clip)});
  EXPECT_THAT(batch["mp4"].shape(), ElementsAre(9, 4, 48, 32, 3));
  EXPECT_EQ(batch["mp4"].dtype(), DType::kUInt8);
  EXPECT_THAT(batch["mp4_times"].shape(), ElementsAre(9, 4));
  for (std::size_t i = 0; i < 9; ++i) {
    const std::string bytes = bytes_of(samples[i], "mp4");
    VideoReader video(bytes);
    const Numbers numbers = detail::clip_frames(video.times(), clip, sample_key(kSeed, 0, i));
    const auto frames = frames_of(video, numbers);
    const auto width = static_cast<std::size_t>(video.info().width);
    const std::size_t left = (width - 32) / 2;
    const auto row = batch["mp4"].bytes(i);
    for (std::size_t line = 0; line < 4 * 48; ++line) {
      ASSERT_EQ(0, std::memcmp(row.data() + line * 32 * 3,
                               frames.data() + (line * width + left) * 3, 32 * 3))
          << i << ", line " << line;
    }
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(batch["mp4_times"].values<double>()[i * 4 + k],
                video.times()[static_cast<std::size_t>(numbers[k])]);
    }
  }
}

TEST(VideoColumnTest, AllFramesOfAClipGetOneTransform) {
  const test::TempDir dir;
  const auto samples = make_media(6);
  const Dataset data = test::make_dataset(dir, "d", samples);
  const ImageTransform transform{.random_resized_crop = {{.size = {20, 24}}},
                                 .horizontal_flip = 0.5,
                                 .colour_jitter = {{.brightness = {0.5, 1.5}}},
                                 .normalize = ImageTransform::Normalize{},
                                 .random_erasing = ImageTransform::RandomErasing{},
                                 .type = ImageTransform::Type::kFloat32};
  const Batch batch = one_batch(data, {columns::video("mp4", {.frames = 5}, transform)});
  EXPECT_THAT(batch["mp4"].shape(), ElementsAre(6, 5, 3, 20, 24));
  const detail::ImageTransformer transformer(transform);
  for (std::size_t i = 0; i < 6; ++i) {
    const std::string bytes = bytes_of(samples[i], "mp4");
    VideoReader video(bytes);
    const Hash128 key = sample_key(kSeed, 0, i);
    const Numbers numbers = detail::clip_frames(video.times(), {.frames = 5}, key);
    const auto frames = frames_of(video, numbers);
    const auto height = static_cast<std::size_t>(video.info().height);
    const auto width = static_cast<std::size_t>(video.info().width);
    const detail::ImagePlan plan = transformer.plan({height, width}, key);
    std::vector<float> expected(5 * 3 * 20 * 24);
    for (std::size_t k = 0; k < 5; ++k) {
      const detail::RgbView view{frames.data() + k * video.frame_bytes(), height, width, width * 3};
      transformer.apply(plan, view.cropped(plan.source), expected.data() + k * 3 * 20 * 24);
    }
    const auto row = batch["mp4"].bytes(i);
    ASSERT_EQ(row.size(), expected.size() * sizeof(float));
    EXPECT_EQ(0, std::memcmp(row.data(), expected.data(), row.size())) << i;
  }
}

/// Returns the video with key frames 0, 10 and 20, damaged so that only frames between 10 and 20
/// fail. Returns "" if no damaged byte has this effect.
std::string damaged_in_the_middle() {
  const std::string good = encode_video({.codec = "libx264"});
  const std::size_t media = good.find("mdat") + 4;
  const std::size_t tables = good.find("moov");
  for (std::size_t at = media; at + 8 < tables; at += 16) {
    std::string bad = good;
    std::fill_n(bad.begin() + static_cast<std::ptrdiff_t>(at), 8, '\xFF');
    VideoReader video(bad);
    const auto can_read = [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::uint8_t> frames(static_cast<std::size_t>(end - begin) * video.frame_bytes());
      try {
        video.read({.begin = begin, .end = end}, frames);
      } catch (const BadField&) {
        return false;
      }
      return true;
    };
    if (can_read(0, 10) && can_read(20, 30) && !can_read(10, 20)) return bad;
  }
  return {};
}

TEST(VideoColumnTest, NothingBeforeTheKeyFrameOrBehindTheClipIsDecoded) {
  if (!has_encoder("libx264"))
    GTEST_SKIP() << "needs an encoder for H.264; skipped because this libavcodec has none";
  const test::TempDir dir;
  const std::string bytes = damaged_in_the_middle();
  ASSERT_FALSE(bytes.empty());
  const Dataset data = test::make_dataset(dir, "d", {{{"mp4", bytes}}});
  const auto clip = [](double begin) {
    return columns::video("mp4", {.frames = 10, .every = 1, .begin_seconds = begin});
  };
  EXPECT_EQ(one_batch(data, {clip(0)}).size(), 1U);
  EXPECT_EQ(one_batch(data, {clip(0.8)}).size(), 1U);
  EXPECT_THAT(error_of(data, clip(0.4)), test::Says("cannot decode", "'mp4' as a video", "damaged",
                                                    "sample 0 ('s00000') in shard", "d-0.tar"));
}

TEST(VideoColumnTest, VideosOfSeveralSizesNeedOne) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", make_media(3));
  EXPECT_THAT(error_of(data, columns::video("mp4", {.frames = 2})),
              test::Says("differ in size", "48x48 (HxW)", "48x32 (HxW)", "set resize, or a crop"));
  const Dataset one = test::make_dataset(dir, "one", make_media(1));
  const Batch batch = one_batch(one, {columns::video("mp4", {.frames = 2})});
  EXPECT_THAT(batch["mp4"].shape(), ElementsAre(1, 2, 3, 48, 32));
}

TEST(VideoColumnTest, LimitsAreThoseOfTheReader) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", make_media(1));
  EXPECT_THAT(error_of(data, columns::video("mp4", {.max_pixels = 32 * 48 - 1})),
              test::Says("48x32 (HxW)", "limit of 1,535 pixels"));
  EXPECT_THAT(error_of(data, columns::video("mp4", {.max_frames = 12})), HasSubstr("12"));
  EXPECT_THAT(error_of(data, columns::video_times("mp4", {.max_frames = 12})), HasSubstr("12"));
  EXPECT_THAT(
      error_of(data, columns::video("mp4", {.max_pixels = 32 * 48}, {.resize_shorter_side = 64})),
      test::Says("transform enlarges", "48x32 (HxW) to 96x64 (HxW)"));
  EXPECT_THAT(error_of(data, columns::audio("flac", {.max_samples = 3199})),
              HasSubstr("limit of 3,199"));
}

// ---------------------------------------------------------------------------------------- sounds

TEST(AudioColumnTest, SoundsAreThoseOfTheReader) {
  const test::TempDir dir;
  const auto samples = make_media(6);
  const Dataset data = test::make_dataset(dir, "d", samples);
  const Column part = columns::audio("flac", {.begin_seconds = 0.1, .end_seconds = 0.3});
  const Batch batch = one_batch(
      data, {columns::audio("flac", {}), part.named("part"),
             columns::audio("flac", {.sample_rate = 16'000, .channels = 1, .seconds = 0.25})
                 .named("mono")});
  for (std::size_t i = 0; i < 6; ++i) {
    const std::string bytes = bytes_of(samples[i], "flac");
    const auto same = [&](const char* name, const AudioReader::Clip& clip) {
      const auto row = batch[name].bytes(i);
      EXPECT_THAT(batch[name].row_shape(i), ElementsAre(clip.channels, clip.num_samples)) << name;
      ASSERT_EQ(row.size(), clip.samples.size() * sizeof(float)) << name << i;
      EXPECT_EQ(0, std::memcmp(row.data(), clip.samples.data(), row.size())) << name << i;
    };
    same("flac", AudioReader(bytes).read());
    same("part", AudioReader(bytes).read(0.1, 0.3));
    same("mono", AudioReader(bytes, {.sample_rate = 16'000, .channels = 1}).read(0, 0.25));
  }
}

TEST(AudioColumnTest, SoundsOfOneLengthHaveZerosBehind) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(
      dir, "d",
      {{{"wav",
         encode_sound(
             {.codec = "pcm_s16le", .container = "wav", .channels = 2, .num_samples = 1000})}},
       {{"wav",
         encode_sound(
             {.codec = "pcm_s16le", .container = "wav", .channels = 2, .num_samples = 9000})}}});
  const Batch batch = one_batch(
      data,
      {columns::audio("wav",
                      {.sample_rate = 8000, .channels = 2, .seconds = 0.5, .fixed_length = true})});
  ASSERT_THAT(batch["wav"].shape(), ElementsAre(2, 2, 4000));
  const auto values = batch["wav"].values<float>();
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t c = 0; c < 2; ++c) {
      for (std::size_t i = 0; i < 4000; ++i) {
        const bool is_sound = row == 1 || i < 1000;
        const double expected =
            is_sound ? fuzz::test_sound(static_cast<int>(c), static_cast<std::int64_t>(i), 8000)
                     : 0;
        ASSERT_NEAR(values[(row * 2 + c) * 4000 + i], expected, is_sound ? 1.0 / 32768 : 0)
            << row << ", " << c << ", " << i;
      }
    }
  }
}

/// Whether `clip` has the samples from `begin` on of a sound with one channel.
bool are_samples(std::span<const float> clip, const std::string& sound, std::int64_t begin) {
  const auto all = AudioReader(sound).read().samples;
  const auto first = static_cast<std::size_t>(begin);
  return first + clip.size() <= all.size() &&
         std::equal(clip.begin(), clip.end(), all.begin() + static_cast<std::ptrdiff_t>(first));
}

/// Returns where a random clip of 4,000 samples begins in a sound of `size` samples.
std::int64_t random_start(std::int64_t size, std::size_t sample) {
  return detail::clip_start(size, 4000, ClipStart::kRandom, sample_key(kSeed, 0, sample),
                            detail::Operation::kAudioClip);
}

TEST(AudioColumnTest, ClipsBeginWhereTheirStartSays) {
  const test::TempDir dir;
  const std::string flac = encode_sound({.num_samples = 24'000});
  const Dataset data = test::make_dataset(dir, "d", std::vector<test::Fields>(8, {{"flac", flac}}));
  const auto clip = [](const char* name, ClipStart start) {
    return columns::audio("flac",
                          {.seconds = 0.5, .start = start, .begin_seconds = 1, .end_seconds = 2.5})
        .named(name);
  };
  const Batch batch =
      one_batch(data, {clip("first", ClipStart::kFirst), clip("centre", ClipStart::kCentre),
                       clip("random", ClipStart::kRandom)});
  const auto values = [&](const char* name, std::size_t row) {
    return batch[name].values<float>().subspan(row * 4000, 4000);
  };
  std::set<std::int64_t> starts;
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(are_samples(values("first", i), flac, 8000));
    EXPECT_TRUE(are_samples(values("centre", i), flac, 12'000));
    const std::int64_t start = 8000 + random_start(12'000, i);
    EXPECT_TRUE(are_samples(values("random", i), flac, start)) << i;
    starts.insert(start);
  }
  EXPECT_GT(starts.size(), 5U);
}

TEST(AudioColumnTest, ASoundWhoseContainerDoesNotKnowItsLengthIsMeasured) {
  const test::TempDir dir;
  std::string flac = encode_sound({.num_samples = 24'000});
  flac[21] = static_cast<char>(flac[21] & 0xF0);  // clear the number of samples: 36 bits, 0 means
                                                  // unknown
  std::fill_n(flac.begin() + 22, 4, '\0');
  ASSERT_EQ(AudioReader(flac).info().duration_seconds, 0);
  const Dataset data = test::make_dataset(dir, "d", std::vector<test::Fields>(6, {{"flac", flac}}));
  const Batch batch =
      one_batch(data, {columns::audio("flac", {.seconds = 0.5, .start = ClipStart::kRandom})});
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(are_samples(batch["flac"].values<float>().subspan(i * 4000, 4000), flac,
                            random_start(24'000, i)))
        << i;
  }
}

TEST(AudioColumnTest, ASoundThatEndsBeforeItsContainerSaysIsMeasured) {
  const test::TempDir dir;
  std::string mkv = encode_sound({.codec = "flac", .container = "matroska", .num_samples = 24'000});
  const std::size_t duration = mkv.find("\x44\x89\x88");  // a double, in ms
  ASSERT_NE(duration, std::string::npos);
  mkv.replace(duration + 3, 8, std::string("\x40\xD3\x88\0\0\0\0\0", 8));  // 20 s
  ASSERT_EQ(AudioReader(mkv).info().duration_seconds, 20);
  const Dataset data = test::make_dataset(dir, "d", std::vector<test::Fields>(6, {{"mkv", mkv}}));
  const Batch batch =
      one_batch(data, {columns::audio("mkv", {.seconds = 0.5, .start = ClipStart::kRandom})});
  ASSERT_EQ(batch["mkv"].values<float>().size(), 6U * 4000);
  int measured = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    const std::int64_t promised = random_start(160'000, i);
    const bool is_there = promised + 4000 <= 24'000;
    measured += is_there ? 0 : 1;
    EXPECT_TRUE(are_samples(batch["mkv"].values<float>().subspan(i * 4000, 4000), mkv,
                            is_there ? promised : random_start(24'000, i)))
        << i;
  }
  EXPECT_GT(measured, 0);
}

TEST(AudioColumnTest, ARangeWithoutSamplesIsABadField) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", make_media(1));
  for (const double seconds : {0.0, 1.0}) {
    EXPECT_THAT(
        error_of(data, columns::audio("flac", {.seconds = seconds, .begin_seconds = 60})),
        test::Says("cannot decode", "'flac' as a sound", "no audio sample", "[60.000000, inf) s"));
  }
}

TEST(AudioColumnTest, TheSoundOfAVideoIsRead) {
  const test::TempDir dir;
  const std::string bytes = encode_video({.num_frames = 50, .with_sound = true});
  const Dataset data = test::make_dataset(dir, "d", {{{"mp4", bytes}}});
  const Batch batch = one_batch(
      data, {columns::video("mp4", {.frames = 2}),
             columns::audio("mp4", {.seconds = 1, .start = ClipStart::kRandom}).named("sound")});
  EXPECT_EQ(batch["sound"].row_shape(0)[1], AudioReader(bytes).info().sample_rate);
}

TEST(MediaColumnTest, CompressedFieldsAreExpanded) {
  const test::TempDir dir;
  const auto samples = make_media(1);
  const auto packed = [&](const std::string& field) {
    return fuzz::compressed_bytes(bytes_of(samples[0], field), Compression::kZstd);
  };
  const Dataset data =
      test::make_dataset(dir, "d", {{{"mp4.zst", packed("mp4")}, {"flac.zst", packed("flac")}}});
  const Batch found = one_batch(
      data, {columns::video("mp4.zst", {.frames = 3}),
             columns::video_times("mp4.zst", {.frames = 3}), columns::audio("flac.zst", {})});
  const Batch expected =
      one_batch(test::make_dataset(dir, "plain", samples),
                {columns::video("mp4", {.frames = 3}), columns::video_times("mp4", {.frames = 3}),
                 columns::audio("flac", {})});
  for (std::size_t a = 0; a < 3; ++a) {
    EXPECT_EQ(found.arrays()[a].text(0), expected.arrays()[a].text(0)) << a;
  }
}

// ------------------------------------------------------------------------------- runs of a loader

std::vector<Column> training_columns() {
  const Column::VideoClip clip{.frames = 3, .every = 2, .start = ClipStart::kRandom};
  return {columns::video("mp4", clip,
                         {.random_resized_crop = {{.size = {24, 24}}}, .horizontal_flip = 0.5}),
          columns::video_times("mp4", clip),
          columns::audio("flac", {.sample_rate = 8000,
                                  .channels = 1,
                                  .seconds = 0.25,
                                  .start = ClipStart::kRandom,
                                  .fixed_length = true})};
}

using Rows = std::map<std::int64_t, std::string>;

void add_rows(const Batch& batch, Rows& rows) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    std::string row;
    for (const Batch::Array& array : batch.arrays()) row += array.text(i);
    EXPECT_TRUE(rows.emplace(batch.samples()[i], row).second) << batch.samples()[i];
  }
}

TEST(MediaLoaderTest, ThreadsBatchesAndResumingGiveTheSameBits) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", make_media(20), 7);
  const auto options = [](unsigned threads, std::uint64_t batch_size) {
    return Loader::Options{.columns = training_columns(),
                           .order = {.seed = kSeed},
                           .batch_size = batch_size,
                           .threads = threads};
  };
  Rows expected;
  for (const unsigned threads : {1U, 2U, 7U}) {
    for (const std::uint64_t batch_size : {1U, 6U, 20U}) {
      Rows rows;
      Loader loader(data, options(threads, batch_size));
      while (const auto batch = loader.next()) add_rows(*batch, rows);
      EXPECT_THAT(loader.prove(), HasSubstr("20 samples, each exactly once: proven"));
      if (expected.empty()) expected = rows;
      EXPECT_TRUE(rows == expected) << threads << " threads, batches of " << batch_size;
    }
  }
  Rows rows;
  std::string token;
  {
    Loader loader(data, options(2, 3));
    for (int step = 0; step < 2; ++step) add_rows(loader.next().value(), rows);
    token = loader.state().to_text();
  }
  Loader loader(data, options(1, 5));
  loader.restore(ResumeToken::from_text(token));
  while (const auto batch = loader.next()) add_rows(*batch, rows);
  EXPECT_THAT(loader.prove(), HasSubstr("20 samples, each exactly once: proven"));
  EXPECT_TRUE(rows == expected);
  Loader other(data, options(1, 20));
  other.set_epoch(1);
  Rows next;
  add_rows(other.next().value(), next);
  EXPECT_TRUE(next != expected) << "another epoch draws anew";
}

TEST(MediaLoaderTest, BadMediaAreLeftOut) {
  const test::TempDir dir;
  auto samples = make_media(12);
  samples[2][0].second.resize(samples[2][0].second.size() / 2);
  samples[5][0].second = "no video";
  samples[7][1].second.resize(100);
  samples[9][1] = {"txt", "no sound"};
  const Dataset data = test::make_dataset(dir, "d", samples);
  Loader loader(data, {.columns = training_columns(),
                       .order = {.seed = kSeed},
                       .batch_size = 5,
                       .threads = 2,
                       .max_bad = 4});
  Rows rows;
  while (const auto batch = loader.next()) add_rows(*batch, rows);
  loader.prove();
  EXPECT_EQ(rows.size(), 8u);
  std::string reasons;
  for (const auto& [sample, bad] : loader.bad_samples().samples()) reasons += bad.reason + "\n";
  EXPECT_THAT(reasons, test::Says("cannot decode", "'mp4' as a video",
                                  "ends early): sample 2 ('s00002')", "not those of MP4",
                                  "'flac' as a sound", "the sample has no field 'flac'"));
}

/// A memory resource that counts the bytes of batches.
class CountingMemory : public std::pmr::memory_resource {
 public:
  [[nodiscard]] std::size_t peak() const { return peak_; }

 private:
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    const std::size_t held = held_ += size;
    std::size_t peak = peak_;
    while (held > peak && !peak_.compare_exchange_weak(peak, held)) {
    }
    return std::pmr::new_delete_resource()->allocate(size, alignment);
  }
  void do_deallocate(void* p, std::size_t size, std::size_t alignment) override {
    held_ -= size;
    std::pmr::new_delete_resource()->deallocate(p, size, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::atomic<std::size_t> held_{0};
  std::atomic<std::size_t> peak_{0};
};

// Counts the memory of batches when it is allocated. It must not exceed that of (prefetch + 1)
// batches, whatever the number of clips.
TEST(MediaLoaderTest, AnEpochOf200ClipsIsExactOnSeveralRanksInBoundedMemory) {
  const test::TempDir dir;
  const Dataset data = test::make_dataset(dir, "d", make_media(200), 23);
  constexpr std::size_t kPrefetch = 3;
  constexpr std::size_t kBatch = 4;
  // The pool rounds each array's size up, to at least 4 KiB.
  constexpr std::size_t kBatchBytes = kBatch * (3 * 3 * 24 * 24 + 2000 * 4) * 9 / 8 + 4096;
  Rows expected;
  for (const std::uint64_t world : {1U, 2U, 4U}) {
    test::ThreadRanks ranks(world);
    std::mutex mutex;
    Rows rows;
    test::on_ranks(world, [&](std::uint64_t rank) {
      const auto memory = std::make_shared<CountingMemory>();
      Loader loader(data,
                    {.columns = training_columns(),
                     .order = {.seed = kSeed},
                     .batch_size = kBatch,
                     .threads = 2,
                     .prefetch = kPrefetch,
                     .memory = memory},
                    ranks.rank(rank));
      while (auto batch = loader.next()) {
        const std::lock_guard lock(mutex);
        add_rows(*batch, rows);
      }
      EXPECT_THAT(loader.prove(), HasSubstr("200 samples, each exactly once: proven"));
      EXPECT_GT(memory->peak(), kBatch * 3 * 3 * 24 * 24);
      EXPECT_LE(memory->peak(), (kPrefetch + 1) * kBatchBytes);
    });
    EXPECT_EQ(rows.size(), 200u);
    if (expected.empty()) expected = rows;
    EXPECT_TRUE(rows == expected) << world << " ranks";
  }
}

}  // namespace
}  // namespace shardwise
