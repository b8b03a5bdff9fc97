#include "shardwise/base/compression.h"

#include <array>
#include <random>

#include "base/expanding_reader.h"
#include "support/support.h"

namespace shardwise {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::array kAll = {Compression::kGzip, Compression::kZstd, Compression::kXz,
                             Compression::kBzip2, Compression::kLz4};

std::string expand(std::string_view bytes, Compression compression,
                   const ExpansionLimits& limits = {}) {
  ExpandingReader reader(bytes, compression, "x.tar.z", limits);
  EXPECT_EQ(reader.position(), 0U);
  std::string out;
  std::string piece(1000, '\0');
  while (const std::size_t n = reader.read(piece.data(), piece.size())) out.append(piece, 0, n);
  EXPECT_EQ(reader.position(), out.size());
  EXPECT_EQ(reader.compressed_position(), bytes.size());
  return out;
}

bool is_unchecked(std::string_view bytes, Compression compression) {
  ExpandingReader reader(bytes, compression, "x.tar.z");
  std::string piece(1000, '\0');
  while (reader.read(piece.data(), piece.size()) > 0) continue;
  return reader.unchecked();
}

/// Returns the error text of expanding `bytes`.
std::string refusal(std::string_view bytes, Compression compression) {
  return test::error_text([&] { expand(bytes, compression); });
}

std::string some_text(std::size_t size) {
  std::string text;
  for (unsigned i = 0; text.size() < size; ++i) text += std::to_string(i * 2654435761U) + " ";
  text.resize(size);
  return text;
}

TEST(CompressionTest, EachComesBackAsItWas) {
  for (const Compression compression : kAll) {
    SCOPED_TRACE(compression_name(compression));
    for (const std::size_t size : {0U, 1U, 999U, 1000U, 300'000U}) {
      if (size == 0 && compression == Compression::kLz4) continue;  // libarchive cannot write it
      const std::string text = some_text(size);
      const std::string bytes = test::compress(text, compression);
      EXPECT_EQ(detect_compression(bytes), compression);
      EXPECT_EQ(expand(bytes, compression), text) << size;
    }
    EXPECT_EQ(parse_compression(compression_name(compression)), compression);
  }
  EXPECT_EQ(detect_compression("tar"), Compression::kNone);
  EXPECT_EQ(parse_compression("none"), Compression::kNone);
  EXPECT_THAT(test::error_text([] { parse_compression("zip"); }), HasSubstr("'zip'"));
}

TEST(CompressionTest, AnEmptyLz4FrameIsEmpty) {
  const std::string frame("\x04\x22\x4d\x18\x64\x40\xa7\0\0\0\0\x05\x5d\xcc\x02", 15);
  EXPECT_EQ(expand(frame, Compression::kLz4), "");
}

TEST(CompressionTest, FramesOneAfterAnotherAreRead) {
  for (const Compression compression :
       {Compression::kGzip, Compression::kZstd, Compression::kBzip2, Compression::kLz4}) {
    SCOPED_TRACE(compression_name(compression));
    const std::string first = some_text(5000);
    const std::string second = some_text(7000);
    EXPECT_EQ(expand(test::compress(first, compression) + test::compress(second, compression),
                     compression),
              first + second);
  }
}

TEST(CompressionTest, AFileThatIsCutAnywhereIsAnErrorThatSaysWhere) {
  for (const Compression compression : kAll) {
    SCOPED_TRACE(compression_name(compression));
    const std::string bytes = test::compress(some_text(1000), compression);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const auto cut = [&] { expand(std::string_view(bytes).substr(0, size), compression); };
      ASSERT_EQ(test::error_code(cut), ErrorCode::kCorruptShard) << size;
      ASSERT_THAT(test::error_text(cut), HasSubstr("damaged (")) << size;
      ASSERT_THAT(test::error_text(cut), HasSubstr(": 'x.tar.z', offset ")) << size;
      ASSERT_THAT(test::error_text(cut), HasSubstr(", expanded offset ")) << size;
    }
    EXPECT_THAT(
        refusal(std::string_view(bytes).substr(0, bytes.size() - 1), compression),
        HasSubstr("truncated within a " + std::string(compression_name(compression)) + " stream"));
  }
}

TEST(CompressionTest, AFlippedBitIsRefusedOrChangesNothing) {
  const std::uint64_t seed = test::random_seed();
  std::mt19937_64 random(seed);
  const std::string first = some_text(9000), second = std::string(5000, 'z') + some_text(3000);
  for (const Compression compression : kAll) {
    SCOPED_TRACE(compression_name(compression));
    const std::string whole =
        test::compress(first, compression) + test::compress(second, compression);
    ASSERT_FALSE(is_unchecked(whole, compression));
    int refused = 0;
    for (int trial = 0; trial < 1000; ++trial) {
      std::string bytes = whole;
      const std::uint64_t bit = random() % (bytes.size() * 8);
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      try {
        ASSERT_EQ(expand(bytes, compression), first + second) << "seed " << seed << ", bit " << bit;
      } catch (const Error& e) {
        ASSERT_TRUE(e.code() == ErrorCode::kCorruptShard || e.code() == ErrorCode::kUnsupported);
        ASSERT_THAT(e.what(), HasSubstr("'x.tar.z'"));
        ++refused;
      }
    }
    EXPECT_GT(refused, 950) << "a few bits, as those of a time or a name, mean nothing";
  }
}

TEST(CompressionTest, ASecondStreamWhoseBeginningIsDamagedIsNotDropped) {
  for (const Compression compression : kAll) {
    SCOPED_TRACE(compression_name(compression));
    const std::string first = test::compress(some_text(5000), compression);
    const std::string second = test::compress(some_text(7000), compression);
    for (std::size_t i = 0; i < 2; ++i) {
      std::string bytes = first + second;
      bytes[first.size() + i] ^= 1;
      EXPECT_THAT(
          refusal(bytes, compression),
          AllOf(HasSubstr("after the " + std::string(compression_name(compression)) + " stream"),
                HasSubstr("'x.tar.z', offset " + std::to_string(first.size()) +
                          ", expanded offset 5000; ")));
    }
    EXPECT_NE(refusal(first + second.substr(0, 2), compression), "");
  }
}

TEST(CompressionTest, WhatFollowsAStreamIsZerosOrAnError) {
  const std::string text = some_text(5000);
  const std::string zeros(777, '\0');
  for (const Compression compression : kAll) {
    SCOPED_TRACE(compression_name(compression));
    const std::string stream = test::compress(text, compression);
    EXPECT_EQ(expand(stream + zeros, compression), text);
    EXPECT_EQ(expand(stream + zeros + stream + zeros, compression), text + text);
    for (const std::string rest : {"x", "garbage", "BZ", "\x1f"}) {
      EXPECT_THAT(refusal(stream + rest, compression),
                  HasSubstr("offset " + std::to_string(stream.size()) + ","));
      EXPECT_THAT(refusal(stream + zeros + rest, compression),
                  HasSubstr("offset " + std::to_string(stream.size() + zeros.size()) + ","));
    }
    EXPECT_THAT(refusal(zeros + stream, compression), HasSubstr(" header"));
  }
}

TEST(CompressionTest, SkippableFramesAreSteppedOver) {
  // A skippable frame as pzstd writes it: it contains the length of the next frame.
  const std::string skippable("\x50\x2a\x4d\x18\4\0\0\0abcd", 12);
  const std::string last("\x5f\x2a\x4d\x18\0\0\0\0", 8);
  const std::string text = some_text(5000);
  for (const Compression compression : {Compression::kZstd, Compression::kLz4}) {
    SCOPED_TRACE(compression_name(compression));
    const std::string frame = test::compress(text, compression);
    const std::string bytes = skippable + frame + skippable + skippable + frame + last;
    EXPECT_EQ(detect_compression(bytes), compression);
    EXPECT_EQ(expand(bytes, compression), text + text);
    EXPECT_THAT(refusal(bytes.substr(0, bytes.size() - 9), compression), HasSubstr("damaged"));
    EXPECT_THAT(refusal(frame + skippable.substr(0, 11), compression), HasSubstr("truncated"));
    EXPECT_THAT(refusal(frame + skippable.substr(0, 7), compression), HasSubstr("neither"));
  }
  EXPECT_EQ(detect_compression(std::string("\x50\x2a\x4d\x18\0\2\0\0", 8) + std::string(512, 'x')),
            Compression::kZstd)
      << "what is behind a longer one is not looked at";
  EXPECT_EQ(detect_compression(skippable + "tar"), Compression::kNone);
  EXPECT_THAT(refusal(test::compress(text, Compression::kGzip) + skippable, Compression::kGzip),
              HasSubstr("nor zeros"));
}

TEST(CompressionTest, AStreamWithoutAChecksumIsReadAndSaidToBeSo) {
  const std::string text = some_text(5000);
  for (const Compression compression : {Compression::kZstd, Compression::kXz, Compression::kLz4}) {
    SCOPED_TRACE(compression_name(compression));
    const std::string checked = test::compress(text, compression);
    const std::string unchecked = test::compress_unchecked(text, compression);
    EXPECT_EQ(expand(unchecked, compression), text);
    EXPECT_FALSE(is_unchecked(checked, compression));
    EXPECT_TRUE(is_unchecked(unchecked, compression));
    EXPECT_TRUE(is_unchecked(unchecked + checked, compression)) << "one of them is enough";
    EXPECT_TRUE(is_unchecked(checked + unchecked, compression));
  }
}

/// Returns a zstd frame of one uncompressed block, with these header flags and window descriptor.
std::string raw_zstd_frame(char flags, const std::string& window, const std::string& content) {
  const auto block = static_cast<std::uint32_t>(content.size() << 3 | 1);  // a raw block, which is
                                                                           // the last
  return std::string("\x28\xb5\x2f\xfd") + flags + window + static_cast<char>(block) +
         static_cast<char>(block >> 8) + static_cast<char>(block >> 16) + content;
}

TEST(CompressionTest, LongWindowsAreReadWithinALimit) {
  const std::string of_2_gib(1, static_cast<char>((31 - 10) << 3));
  const std::string frame = raw_zstd_frame('\0', of_2_gib, "content");
  EXPECT_EQ(expand(frame, Compression::kZstd), "content");
  const auto limited = [&] {
    expand(frame, Compression::kZstd, {.max_window_bytes = std::uint64_t{1} << 27});
  };
  EXPECT_EQ(test::error_code(limited), ErrorCode::kUnsupported);
  EXPECT_THAT(test::error_text(limited),
              AllOf(HasSubstr("cannot be expanded"), HasSubstr("more than 128.0 MiB"),
                    HasSubstr("'x.tar.z', offset ")));
  const std::string xz = test::compress(some_text(100), Compression::kXz);  // a window of 8 MiB
  EXPECT_EQ(test::error_code([&] {
              expand(xz, Compression::kXz, {.max_window_bytes = std::uint64_t{1} << 20});
            }),
            ErrorCode::kUnsupported);
}

TEST(CompressionTest, WhatNeedsADictionaryIsRefused) {
  const std::string frame = raw_zstd_frame('\1', std::string("\x50\7", 2), "content");
  EXPECT_THAT(refusal(frame, Compression::kZstd), HasSubstr("compressed with a dictionary"));
  std::string lz4 = test::compress("content", Compression::kLz4);
  lz4[4] |= 1;
  EXPECT_THAT(refusal(lz4, Compression::kLz4), HasSubstr("compressed with a dictionary"));
}

TEST(CompressionTest, ABombIsRefused) {
  const std::string zeros(std::size_t{70} << 20, '\0');
  const std::string bomb = test::compress(zeros, Compression::kZstd);
  ASSERT_LT(bomb.size(), 64U << 10);
  const auto expand_bomb = [&] { expand(bomb, Compression::kZstd); };
  EXPECT_EQ(test::error_code(expand_bomb), ErrorCode::kUnsupported);
  EXPECT_THAT(test::error_text(expand_bomb), HasSubstr("more than 1100 times"));
  EXPECT_THAT(test::error_text([&] {
                expand(test::compress(some_text(5000), Compression::kGzip), Compression::kGzip,
                       {.max_bytes = 4096});
              }),
              HasSubstr("more than 4.0 KiB"));
}

}  // namespace
}  // namespace shardwise
