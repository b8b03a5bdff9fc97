#include "shardwise/base/compression.h"

#include <array>

#include "support/support.h"

namespace shardwise {
namespace {

using testing::HasSubstr;

constexpr std::array kAll = {Compression::kGzip, Compression::kZstd, Compression::kXz,
                             Compression::kBzip2, Compression::kLz4};

std::string expand(std::string_view bytes, Compression compression,
                   const ExpansionLimits& limits = {}) {
  ExpandingReader reader(bytes, compression, "x.tar.z", limits);
  std::string out;
  std::string piece(1000, '\0');
  while (const std::size_t n = reader.read(piece.data(), piece.size())) out.append(piece, 0, n);
  EXPECT_EQ(reader.position(), out.size());
  return out;
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
  EXPECT_THAT(test::error_text([] { parse_compression("zip"); }),
              HasSubstr("unknown compression: 'zip'; there are none, gzip"));
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

TEST(CompressionTest, ATruncatedFileIsAnErrorThatSaysWhere) {
  for (const Compression compression : kAll) {
    SCOPED_TRACE(compression_name(compression));
    const std::string bytes = test::compress(some_text(100'000), compression);
    const auto cut = [&] { expand(bytes.substr(0, bytes.size() / 2), compression); };
    EXPECT_EQ(test::error_code(cut), ErrorCode::kCorruptShard);
    EXPECT_THAT(test::error_text(cut), HasSubstr("'x.tar.z', expanded offset "));
  }
}

TEST(CompressionTest, ABombIsRefused) {
  const std::string zeros(std::size_t{70} << 20, '\0');
  const std::string bomb = test::compress(zeros, Compression::kZstd);
  ASSERT_LT(bomb.size(), 64U << 10);
  const auto expand_bomb = [&] { expand(bomb, Compression::kZstd); };
  EXPECT_EQ(test::error_code(expand_bomb), ErrorCode::kUnsupported);
  EXPECT_THAT(test::error_text(expand_bomb), HasSubstr("expands to more than 1100 times its size"));
  EXPECT_THAT(test::error_text([&] {
                expand(test::compress(some_text(5000), Compression::kGzip), Compression::kGzip,
                       {.max_bytes = 4096});
              }),
              HasSubstr("expands to more than 4.0 KiB"));
}

}  // namespace
}  // namespace shardwise
