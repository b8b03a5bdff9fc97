#include "shardwise/decode/audio_reader.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "decode/media_tails.h"
#include "media_bytes.h"
#include "shardwise/base/error.h"
#include "support/support.h"

namespace shardwise {
namespace {

using fuzz::encode_sound;
using fuzz::has_encoder;
using fuzz::SoundSpec;
using fuzz::test_sound;
using test::little_endian;
using test::tails;
using testing::HasSubstr;

/// Returns the largest difference between a clip's channel and the sound that was encoded. The clip
/// begins at the sound's sample `first`.
double largest_difference(const AudioReader::Clip& clip, int channel, std::int64_t first) {
  double largest = 0;
  for (std::int64_t i = 0; i < clip.num_samples; ++i) {
    const auto at = static_cast<std::size_t>(channel * clip.num_samples + i);
    const double expected = test_sound(channel, first + i, clip.sample_rate);
    largest = std::max(largest, std::abs(clip.samples[at] - expected));
  }
  return largest;
}

struct Kind {
  SoundSpec spec;
  double tolerance;      ///< maximum error of a sample
  std::int64_t padding;  ///< maximum number of samples that the codec adds
};

/// Returns the kinds that this libavcodec can encode.
std::vector<Kind> kinds() {
  constexpr double kExact = 1.0 / 32768;
  std::vector<Kind> all = {
      {{.codec = "pcm_s16le", .container = "wav"}, kExact, 0},
      {{.codec = "pcm_u8", .container = "wav", .channels = 2}, 1.0 / 64, 0},
      {{.codec = "pcm_f32le", .container = "wav", .channels = 2}, 1e-6, 0},
      {{.codec = "flac", .container = "flac"}, kExact, 0},
      {{.codec = "flac",
        .container = "flac",
        .sample_rate = 44100,
        .channels = 2,
        .num_samples = 100'000},
       kExact,
       0},
      {{.codec = "flac", .container = "ogg", .channels = 2}, kExact, 0},
      {{.codec = "flac", .container = "matroska", .channels = 2}, kExact, 0},
      {{.codec = "alac", .container = "mov", .channels = 2}, kExact, 0},
      {{.codec = "libmp3lame",
        .container = "mp3",
        .sample_rate = 44100,
        .channels = 2,
        .num_samples = 100'000},
       0.05,
       2400},
      {{.codec = "aac",
        .container = "mp4",
        .sample_rate = 44100,
        .channels = 2,
        .num_samples = 100'000},
       0.05,
       1100},
      {{.codec = "libvorbis",
        .container = "ogg",
        .sample_rate = 44100,
        .channels = 2,
        .num_samples = 100'000},
       0.1,
       0},
      {{.codec = "libopus",
        .container = "ogg",
        .sample_rate = 48000,
        .channels = 2,
        .num_samples = 100'000},
       0.1,
       1000},
  };
  std::erase_if(all, [](const Kind& kind) { return !has_encoder(kind.spec.codec); });
  return all;
}

std::string name_of(const Kind& kind) { return kind.spec.codec + " in " + kind.spec.container; }

TEST(AudioReaderTest, TheWholeSoundIsWhatWasEncoded) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(name_of(kind));
    const std::string bytes = encode_sound(kind.spec);
    AudioReader audio(bytes);
    EXPECT_EQ(audio.info().sample_rate, kind.spec.sample_rate);
    EXPECT_EQ(audio.info().channels, kind.spec.channels);
    const double duration = static_cast<double>(kind.spec.num_samples) / kind.spec.sample_rate;
    EXPECT_NEAR(audio.info().duration_seconds, duration, 0.1);
    const AudioReader::Clip clip = audio.read();
    EXPECT_EQ(clip.sample_rate, kind.spec.sample_rate);
    EXPECT_EQ(clip.channels, kind.spec.channels);
    EXPECT_GE(clip.num_samples, kind.spec.num_samples);
    EXPECT_LE(clip.num_samples, kind.spec.num_samples + kind.padding);
    EXPECT_NEAR(clip.begin_seconds, 0, 0.03);
    ASSERT_EQ(clip.samples.size(), static_cast<std::size_t>(clip.channels * clip.num_samples));
    if (kind.padding > 0) continue;  // the codec's delay shifts the samples
    for (int c = 0; c < clip.channels; ++c) {
      EXPECT_LE(largest_difference(clip, c, 0), kind.tolerance);
    }
  }
}

TEST(AudioReaderTest, ARangeHasTheSamplesOfTheWhole) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(name_of(kind));
    SoundSpec spec = kind.spec;
    spec.num_samples = 4 * spec.sample_rate;
    const std::string bytes = encode_sound(spec);
    AudioReader audio(bytes);
    const AudioReader::Clip whole = audio.read();
    // Matroska stores times in whole milliseconds.
    const std::int64_t slack = spec.container == "matroska" ? spec.sample_rate / 1000 : 0;
    for (const auto& [begin, end] : {std::pair{3.0, 3.5}, {0.25, 0.5}, {1.75, 1.8}, {0.0, 4.0}}) {
      const AudioReader::Clip clip = audio.read(begin, end);
      EXPECT_NEAR(static_cast<double>(clip.num_samples), (end - begin) * spec.sample_rate,
                  static_cast<double>(slack) + 0.5 + 1200 * (end == 4));
      const auto skipped =
          std::llround((clip.begin_seconds - whole.begin_seconds) * spec.sample_rate);
      double best = 1;
      for (std::int64_t shift = -slack; shift <= slack; ++shift) {
        double largest = 0;
        for (std::int64_t i = slack; i < clip.num_samples - slack; ++i) {
          largest = std::max<double>(
              largest, std::abs(clip.samples[static_cast<std::size_t>(i)] -
                                whole.samples[static_cast<std::size_t>(skipped + shift + i)]));
        }
        best = std::min(best, largest);
      }
      EXPECT_LE(best, kind.tolerance > 0.01 ? 1e-4 : 0) << begin << " to " << end;
    }
    EXPECT_EQ(audio.read(5.0, 6.0).num_samples, 0);
    EXPECT_EQ(audio.read(1.0, 1.0).num_samples, 0);
    EXPECT_EQ(audio.read().samples, whole.samples);
  }
}

TEST(AudioReaderTest, TheSoundOfAVideoIsRead) {
  for (const char* container : {"mp4", "matroska"}) {
    const std::string bytes = fuzz::encode_video({.container = container, .with_sound = true});
    AudioReader audio(bytes);
    EXPECT_EQ(audio.info().codec, "aac");
    EXPECT_EQ(audio.info().sample_rate, 8000);
    EXPECT_NEAR(static_cast<double>(audio.read().num_samples), 9600, 2100);
    EXPECT_EQ(audio.read(0.5, 0.75).num_samples, 2000);
  }
}

TEST(AudioReaderTest, ASoundIsMixedAndResampled) {
  const std::string bytes = encode_sound({.channels = 2});
  const AudioReader::Clip stereo = AudioReader(bytes).read();
  const AudioReader::Clip mono = AudioReader(bytes, {.channels = 1}).read();
  ASSERT_EQ(mono.num_samples, stereo.num_samples);
  EXPECT_EQ(mono.channels, 1);
  for (std::size_t i = 0; i < mono.samples.size(); ++i) {
    EXPECT_NEAR(mono.samples[i], (stereo.samples[i] + stereo.samples[8000 + i]) / 2, 1e-6);
  }
  const AudioReader::Clip faster = AudioReader(bytes, {.sample_rate = 16000}).read();
  EXPECT_EQ(faster.sample_rate, 16000);
  EXPECT_EQ(faster.channels, 2);
  EXPECT_EQ(faster.num_samples, 16000);
  double largest = 0;
  // Omit the ends, where the resampler lacks neighbouring samples.
  for (std::int64_t i = 200; i < 15'800; ++i) {
    largest = std::max(
        largest, std::abs(faster.samples[static_cast<std::size_t>(i)] - test_sound(0, i, 16000)));
  }
  EXPECT_LE(largest, 0.001);
  AudioReader slower(bytes, {.sample_rate = 4000, .channels = 1});
  EXPECT_EQ(slower.read(0.25, 0.75).num_samples, 2000);
}

TEST(AudioReaderTest, WhatACallerAsksForIsChecked) {
  const std::string bytes = encode_sound({});
  EXPECT_EQ(test::error_code([&] { AudioReader(bytes, {.sample_rate = -1}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { AudioReader(bytes, {.channels = 65}); }),
            ErrorCode::kInvalidArgument);
  AudioReader audio(bytes);
  EXPECT_EQ(test::error_code([&] { audio.read(2, 1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::error_code([&] { audio.read(std::nan(""), 1); }), ErrorCode::kInvalidArgument);
}

TEST(AudioReaderTest, MoreSamplesThanTheLimitAreRefused) {
  const std::string bytes = encode_sound({.channels = 2});
  EXPECT_THAT(test::error_text(
                  [&] { AudioReader(bytes, {.where = "here", .max_samples = 15'999}).read(); }),
              testing::AllOf(HasSubstr("cannot be decoded"), HasSubstr("limit of 15,999"),
                             HasSubstr("): here; "), HasSubstr("leave the sample out")));
  EXPECT_NO_THROW(AudioReader(bytes, {.max_samples = 16'000}).read());
  EXPECT_NO_THROW(AudioReader(bytes, {.max_samples = 15'999}).read(0, 0.5));
  EXPECT_THAT(test::error_text([&] {
                AudioReader(bytes, {.sample_rate = 800'000, .max_samples = 1'599'999}).read();
              }),
              HasSubstr("more samples than the limit"));
}

TEST(AudioReaderTest, EveryCutOfWhatHasALengthIsRefused) {
  for (const SoundSpec& spec :
       {SoundSpec{.num_samples = 500},
        SoundSpec{.codec = "pcm_s16le", .container = "wav", .num_samples = 500},
        SoundSpec{.codec = "alac", .container = "mov", .num_samples = 500}}) {
    const std::string bytes = encode_sound(spec);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      // Use a copy, so that sanitizers detect reads past the end.
      const std::vector<char> part(bytes.begin(),
                                   bytes.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(test::error_code([&] {
                  AudioReader({part.data(), part.size()}).read();
                }),
                ErrorCode::kBadField)
          << size << " of " << bytes.size() << " bytes of " << spec.container;
    }
  }
}

/// Makes an Ogg with a codec that this libavcodec can encode; empty if it has no such encoder.
std::string make_ogg(int num_samples) {
  for (const char* codec : {"libvorbis", "libopus", "flac"}) {
    if (!has_encoder(codec)) continue;
    const int rate = std::string_view(codec) == "libopus" ? 48'000 : 8000;
    return encode_sound({.codec = codec,
                         .container = "ogg",
                         .sample_rate = rate,
                         .num_samples = num_samples,
                         .muxer_options = {{"page_duration", "100000"}}});
  }
  return {};
}

TEST(AudioReaderTest, NoDamageOfAnOggIsPassedOver) {
  const std::string bytes = make_ogg(12'000);
  if (bytes.empty())
    GTEST_SKIP() << "needs an encoder for Ogg; skipped because this libavcodec has none";
  const auto code_of = [](std::string_view ogg) {
    // A copy, so that sanitizers detect reads past the end.
    const std::vector<char> copy(ogg.begin(), ogg.end());
    return test::error_code([&] { AudioReader({copy.data(), copy.size()}).read(); });
  };
  const std::size_t second_page = bytes.find("OggS", 1);
  std::size_t num_pages = 0;
  for (std::size_t at = 0; at != bytes.npos; at = bytes.find("OggS", at + 1)) ++num_pages;
  ASSERT_GE(num_pages, 4u);
  for (std::size_t at = 0; at < bytes.size(); at += at < 200 ? 1 : 7) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    EXPECT_EQ(code_of(flipped), ErrorCode::kBadField) << "byte " << at;
  }
  for (std::size_t size = 0; size < bytes.size(); size += size < 200 ? 1 : 7) {
    if (bytes.substr(size, 4) == "OggS" && size > second_page) continue;
    EXPECT_EQ(code_of(bytes.substr(0, size)), ErrorCode::kBadField) << size << " bytes";
  }
  const auto whole = AudioReader(bytes).read();
  EXPECT_GE(AudioReader(bytes + bytes).read().samples.size(), 2 * whole.samples.size());
  EXPECT_EQ(AudioReader(bytes + std::string(500, '\0')).read().samples, whole.samples);
  // Data after the end of a clip is not read.
  const std::string long_one = make_ogg(800'000);
  std::string damaged = long_one;
  damaged[damaged.size() - 10] ^= 1;
  EXPECT_EQ(AudioReader(damaged).read(0, 0.1).samples, AudioReader(long_one).read(0, 0.1).samples);
  EXPECT_EQ(code_of(damaged), ErrorCode::kBadField);
}

/// Returns `wav` with the placeholder sizes of programs that write to a pipe.
std::string of_unknown_size(std::string wav, std::uint32_t size) {
  wav.replace(4, 4, little_endian(size));
  wav.replace(wav.find("data") + 4, 4, little_endian(size));
  return wav;
}

TEST(AudioReaderTest, AWavThatDoesNotSayItsSizeGoesOnToItsEnd) {
  // The size is not a multiple of the 4,096 bytes that libav reads at a time.
  const SoundSpec spec{
      .codec = "pcm_s16le", .container = "wav", .channels = 2, .num_samples = 5001};
  const std::string bytes = encode_sound(spec);
  for (const std::uint32_t size : {0xFFFFFFFFU, 0U, 0x7FFFF000U, 0x7FFFFFFFU, 0x80000000U}) {
    SCOPED_TRACE(size);
    const std::string piped = of_unknown_size(bytes, size);
    const AudioReader::Clip clip = AudioReader(piped).read();
    EXPECT_EQ(clip.num_samples, 5001);
    EXPECT_EQ(clip.samples, AudioReader(bytes).read().samples);
    const AudioReader::Clip part = AudioReader(piped).read(0.1, 0.2);
    EXPECT_EQ(part.samples, AudioReader(bytes).read(0.1, 0.2).samples);
    for (const std::size_t cut : {1u, 2u, 3u}) {
      EXPECT_EQ(test::error_code([&] {
                  AudioReader(std::string_view(piped).substr(0, piped.size() - cut)).read();
                }),
                ErrorCode::kBadField)
          << "within a sample";
    }
  }
  EXPECT_THAT(test::error_text([&] { AudioReader audio(of_unknown_size(bytes, 0x7FFFEFFF)); }),
              HasSubstr("the data ends early"))
      << "one that is meant";
}

TEST(AudioReaderTest, AWavOfMoreThan32BitsIsRead) {
  const std::string bytes = encode_sound({.codec = "pcm_s16le", .container = "wav"});
  const auto whole = AudioReader(bytes).read();
  const std::uint32_t size = 2 * 8000;
  for (const char* magic : {"RF64", "BW64"}) {
    const std::string ds64 = "ds64" + little_endian(28) + little_endian(0) + little_endian(0) +
                             little_endian(size) + std::string(16, '\0');
    std::string wav = magic + bytes.substr(4, 8) + ds64 + bytes.substr(12);
    wav.replace(wav.find("data") + 4, 4, little_endian(0xFFFFFFFF));
    EXPECT_EQ(AudioReader(wav + "tail").read().samples, whole.samples);
    wav.pop_back();
    EXPECT_THAT(test::error_text([&] { AudioReader audio(wav); }),
                HasSubstr("the data ends early"));
  }
}

/// Returns the samples of one channel in a range.
std::vector<float> part_of(const AudioReader::Clip& whole, std::int64_t begin, std::int64_t end) {
  return {whole.samples.begin() + begin, whole.samples.begin() + end};
}

TEST(AudioReaderTest, AWavThatHasNoSamplesHasNoneWhateverFollows) {
  const std::string bytes = encode_sound({.codec = "pcm_s16le", .container = "wav"});
  std::string head = bytes.substr(0, bytes.find("data") + 4) + std::string(4, '\0');
  const std::string chunk("LIST\x08\0\0\0INFOabcd", 16);
  const std::string odd("note\3\0\0\0abc\0", 12);
  for (const std::string& behind : {std::string(), chunk, chunk + odd, odd + chunk}) {
    for (const bool knows_own : {false, true}) {
      std::string wav = head + behind;
      const auto size = static_cast<std::uint32_t>(knows_own ? wav.size() - 8 : 0);
      for (int i = 0; i < 4; ++i)
        wav[static_cast<std::size_t>(4 + i)] = static_cast<char>(size >> 8 * i);
      EXPECT_THAT(test::error_text([&] { AudioReader audio(wav); }), HasSubstr("has no samples"));
    }
  }
}

TEST(AudioReaderTest, BytesASecondOfAWavAreNotBelieved) {
  for (const char* codec : {"pcm_s16le", "pcm_u8", "adpcm_ima_wav", "adpcm_ms"}) {
    SCOPED_TRACE(codec);
    std::string bytes = encode_sound({.codec = codec, .container = "wav", .num_samples = 40'000});
    const std::size_t format = bytes.find("fmt ");
    for (const std::string& rate : {bytes.substr(format + 16, 4), std::string(4, '\0'),
                                    std::string("\1\0\0\0", 4), std::string("\0\0\2\0", 4)}) {
      bytes.replace(format + 16, 4, rate);
      AudioReader audio(bytes);
      const auto whole = audio.read();
      const auto clip = audio.read(3, 3.25);
      EXPECT_EQ(clip.begin_seconds, 3);
      EXPECT_EQ(clip.samples, part_of(whole, 24'000, 26'000));
      EXPECT_EQ(AudioReader(bytes).read(3, 3.25).samples, clip.samples);
    }
  }
}

TEST(AudioReaderTest, AGapInTheTimesIsSilence) {
  for (const SoundSpec& kind : {SoundSpec{.codec = "flac", .container = "matroska"},
                                SoundSpec{.codec = "pcm_s16le", .container = "matroska"},
                                SoundSpec{.codec = "alac", .container = "mov"}}) {
    SCOPED_TRACE(kind.codec);
    SoundSpec spec = kind;
    spec.num_samples = 40'000;
    const auto without = AudioReader(encode_sound(spec)).read();
    spec.gap = 8000;
    const std::string bytes = encode_sound(spec);
    AudioReader audio(bytes);
    const auto whole = audio.read();
    ASSERT_EQ(whole.num_samples, 48'000);
    const auto first = std::ranges::mismatch(whole.samples, without.samples).in1;
    const auto at = first - whole.samples.begin();
    EXPECT_NEAR(static_cast<double>(at), 20'000, 4800);  // start of some packet
    EXPECT_EQ(part_of(whole, at, at + 8000), std::vector<float>(8000, 0.0F));
    EXPECT_EQ(part_of(whole, at + 8000, 48'000), part_of(without, at, 40'000));
    // Clips after the gap, inside it, and across its ends; reached by seeking and from the start.
    for (const double begin : {5.0, 3.2, 2.2, 2.9, 0.5}) {
      const auto from = std::llround(begin * 8000);
      const auto clip = AudioReader(bytes).read(begin, begin + 0.7);
      EXPECT_EQ(clip.begin_seconds, begin);
      EXPECT_EQ(clip.samples, part_of(whole, from, from + 5600)) << begin;
    }
    spec.gap = -400;
    EXPECT_THAT(test::error_text([&] { AudioReader(encode_sound(spec)).read(); }),
                HasSubstr("go backwards"));
  }
}

TEST(AudioReaderTest, ACodecIsWarmBehindAGap) {
  if (!has_encoder("libopus"))
    GTEST_SKIP() << "needs an encoder for Opus; skipped because this libavcodec has none";
  SoundSpec spec{.codec = "libopus",
                 .container = "matroska",
                 .sample_rate = 48'000,
                 .num_samples = 48'000,
                 .gap = 3 * 48'000};
  const std::string bytes = encode_sound(spec);
  const auto whole = AudioReader(bytes).read();
  for (const double begin : {3.48, 3.5, 3.52, 3.55, 3.7}) {
    const auto clip = AudioReader(bytes).read(begin, begin + 0.1);
    const auto at = std::llround((begin - whole.begin_seconds) * 48'000);
    double best = 1;
    for (std::int64_t shift = -60; shift <= 60; ++shift) {
      double largest = 0;
      for (std::int64_t i = 0; i < clip.num_samples; ++i) {
        const auto in_whole = static_cast<std::size_t>(at + i + shift);
        largest = std::max<double>(
            largest, std::abs(clip.samples[static_cast<std::size_t>(i)] - whole.samples[in_whole]));
      }
      best = std::min(best, largest);
    }
    EXPECT_LE(best, 1e-4) << begin;
  }
}

TEST(AudioReaderTest, WhatOthersPutBehindASoundIsNoDamage) {
  for (const SoundSpec& spec :
       {SoundSpec{.num_samples = 9000}, SoundSpec{.num_samples = 100},  // a single frame
        SoundSpec{.codec = "pcm_s16le", .container = "wav", .num_samples = 9000},
        SoundSpec{.codec = "alac", .container = "mov", .num_samples = 9000},
        SoundSpec{.codec = "libmp3lame", .container = "mp3", .num_samples = 9000},
        SoundSpec{.codec = "flac", .container = "ogg", .num_samples = 9000}}) {
    if (!has_encoder(spec.codec)) continue;
    const std::string bytes = encode_sound(spec);
    const auto whole = AudioReader(bytes).read();
    const auto part = AudioReader(bytes).read(0.005, 0.01);
    for (const std::string& tail : tails()) {
      SCOPED_TRACE(spec.container + " and " + testing::PrintToString(tail.substr(0, 20)));
      const std::string longer = bytes + tail;
      AudioReader audio(longer);
      EXPECT_EQ(audio.read().samples, whole.samples);
      EXPECT_EQ(audio.read(0.005, 0.01).samples, part.samples);
    }
  }
}

TEST(AudioReaderTest, TagsBeforeASoundAreNoDamage) {
  const std::string tag = std::string("ID3\3\0\0\0\0\1\0", 10) + std::string(128, 'f');
  for (const SoundSpec& spec :
       {SoundSpec{.codec = "pcm_s16le", .container = "wav"}, SoundSpec{},
        SoundSpec{.codec = "flac", .container = "ogg"},
        SoundSpec{.codec = "libmp3lame", .container = "mp3", .num_samples = 20'000}}) {
    if (!has_encoder(spec.codec)) continue;
    SCOPED_TRACE(spec.container);
    std::string bytes = encode_sound(spec);
    const auto whole = AudioReader(bytes).read();
    EXPECT_EQ(AudioReader(tag + bytes).read().samples, whole.samples);
    if (spec.container != "mp3") continue;
    bytes = bytes.substr(bytes.find('\xFF'));  // without the encoder's own tag
    EXPECT_EQ(AudioReader(tag + std::string(700, '\0') + bytes).read().samples, whole.samples)
        << "zeros that the tag does not count";
  }
}

TEST(AudioReaderTest, ASampleOfQuickTimeMayBeLessThanAByte) {
  if (!has_encoder("adpcm_ms"))
    GTEST_SKIP() << "needs an encoder for ADPCM; skipped because this libavcodec has none";
  const std::string bytes =
      encode_sound({.codec = "adpcm_ms", .container = "mov", .num_samples = 400'000});
  EXPECT_LT(bytes.size(), 300'000U);
  EXPECT_GE(AudioReader(bytes).read().num_samples, 400'000);
  // libav makes packets of 1,024 samples, so their number is limited.
  std::string lie = bytes;
  lie.replace(lie.find("stsc") + 16, 4, "\x7F\xFF\xFF\xF0");
  EXPECT_THAT(test::error_text([&] { AudioReader audio(lie); }),
              HasSubstr("MP4: the header claims "));
}

TEST(AudioReaderTest, TagsAroundFlacAreNoDamage) {
  const std::string bytes = encode_sound({.num_samples = 9000});
  const std::string front("ID3\3\0\0\0\0\1\0", 10);  // a tag of 128 bytes
  const std::string footer("ID3\4\0\x10\0\0\0\5", 10);
  const std::string tag = front + std::string(128, 'f');
  const std::string end = "TAG" + std::string(125, '\0');
  const auto whole = AudioReader(bytes).read();
  for (const std::string& tagged : {tag + bytes, bytes + end, tag + bytes + end, tag + tag + bytes,
                                    footer + "12345" + "3DI" + footer.substr(3) + bytes}) {
    AudioReader audio(tagged);
    EXPECT_EQ(audio.info().codec, "flac");
    EXPECT_EQ(audio.read().samples, whole.samples);
    EXPECT_EQ(audio.read(0.2, 0.4).samples, AudioReader(bytes).read(0.2, 0.4).samples);
  }
  for (const std::string& damaged : {tag, front}) {
    EXPECT_EQ(test::error_code([&] { AudioReader(damaged).read(); }), ErrorCode::kBadField);
  }
}

TEST(AudioReaderTest, ZerosBehindTheLastFrameOfAnMp3AreNoDamage) {
  if (!has_encoder("libmp3lame"))
    GTEST_SKIP() << "needs an encoder for MP3; skipped because this libavcodec has none";
  const std::string bytes =
      encode_sound({.codec = "libmp3lame", .container = "mp3", .num_samples = 20'000});
  const auto whole = AudioReader(bytes).read();
  for (const std::size_t zeros : {1u, 3u, 4u, 128u, 4096u, 100'000u}) {
    const std::string padded = bytes + std::string(zeros, '\0');
    EXPECT_EQ(AudioReader(padded).read().samples, whole.samples) << zeros;
  }
  // Zeros between frames are damage.
  std::string torn = bytes;
  torn.insert(bytes.size() / 2, 4096, '\0');
  EXPECT_EQ(test::error_code([&] { AudioReader(torn).read(); }), ErrorCode::kBadField);
}

TEST(AudioReaderTest, NoFlippedByteDoesWorseThanAnError) {
  std::mt19937_64 random(test::random_seed());
  int refused = 0;
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(name_of(kind));
    SoundSpec spec = kind.spec;
    spec.num_samples = 8000;
    const std::string good = encode_sound(spec);
    for (int i = 0; i < 100; ++i) {
      std::string bad = good;
      const std::size_t at =
          random() % std::min<std::size_t>(bad.size(), i % 2 == 0 ? 400 : 1 << 20);
      bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
      try {
        AudioReader audio(bad, {.max_samples = 1 << 20});
        audio.read();
        audio.read(1.2, 1.3);
      } catch (const BadField&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(AudioReaderTest, WhatIsNoSoundIsABadField) {
  EXPECT_THAT(test::error_text([] { AudioReader audio(""); }), HasSubstr("is empty"));
  EXPECT_THAT(test::error_text([] { AudioReader audio("#EXTM3U\nhttp://h/a.mp3\n"); }),
              HasSubstr("first bytes"));
  const std::string silent = fuzz::encode_video({});
  EXPECT_THAT(test::error_text([&] { AudioReader audio(silent); }), HasSubstr("no sound track"));
}

}  // namespace
}  // namespace shardwise
