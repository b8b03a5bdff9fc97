#include "base/text.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/counted.h"
#include "support/support.h"

namespace shardwise {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

TEST(TextTest, WellFormedUtf8IsAccepted) {
  for (const std::string_view bytes : {
           ""sv,
           "plain"sv,
           "\x00"sv,
           "\x7F"sv,
           "\xC2\x80"sv,
           "\xDF\xBF"sv,  // first and last character of two bytes
           "\xE0\xA0\x80"sv,
           "\xED\x9F\xBF"sv,  // the characters next to the surrogates
           "\xEE\x80\x80"sv,
           "\xEF\xBF\xBF"sv,
           "\xF0\x90\x80\x80"sv,
           "\xF4\x8F\xBF\xBF"sv,  // first and last character of four bytes
           "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x99\x82z"sv,
       }) {
    EXPECT_TRUE(is_utf8(bytes)) << hex(bytes);
  }
}

TEST(TextTest, MalformedUtf8IsRefused) {
  for (const std::string_view bytes : {
           "\x80"sv,
           "\xBF"sv,  // a continuation byte alone
           "\xC0\x80"sv,
           "\xC1\xBF"sv,  // overlong, two bytes
           "\xE0\x80\x80"sv,
           "\xE0\x9F\xBF"sv,  // overlong, three bytes
           "\xF0\x80\x80\x80"sv,
           "\xF0\x8F\xBF\xBF"sv,  // overlong, four bytes
           "\xED\xA0\x80"sv,
           "\xED\xBF\xBF"sv,  // surrogates
           "\xF4\x90\x80\x80"sv,
           "\xF5\x80\x80\x80"sv,  // above U+10FFFF
           "\xFE"sv,
           "\xFF"sv,
           "\xC2"sv,
           "\xE2\x82"sv,
           "\xF0\x9F\x99"sv,  // truncated characters
           "\xC2z"sv,
           "\xE2\x82z"sv,
           "\xF0\x9F\x99z"sv,
           "fine\xFF"sv,
           "Andr\xE9"sv,
       }) {
    EXPECT_FALSE(is_utf8(bytes)) << hex(bytes);
  }
}

TEST(TextTest, EscapedIsOnePrintableLine) {
  EXPECT_EQ(escaped("train/0001.jpg"), "train/0001.jpg");
  EXPECT_EQ(escaped("a\nb\tc\\d"), "a\\nb\\tc\\\\d");
  EXPECT_EQ(escaped("\x00\x1F\x7F"sv), "\\x00\\x1f\\x7f");
  EXPECT_EQ(escaped("\xC3\xA4\xE2\x82\xAC"), "\xC3\xA4\xE2\x82\xAC");
  EXPECT_EQ(escaped("Andr\xE9!"), "Andr\\xe9!");
  EXPECT_EQ(escaped("\xED\xA0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(escaped("\r\x1B[31m"), "\\x0d\\x1b[31m");
  // U+009B begins an escape sequence like "\x1B[". U+0085 is a line break.
  EXPECT_EQ(escaped("\xC2\x9B"
                    "31m\xC2\x80\xC2\x85\xC2\x9F\xC2\xA0"),
            "\\xc2\\x9b31m\\xc2\\x80\\xc2\\x85\\xc2\\x9f\\xc2\\xa0");
}

TEST(TextTest, WhatIsNotSeenIsEscaped) {
  for (const char* c :
       {"\xC2\xA0", "\xC2\xAD", "\xE2\x80\x8B", "\xE2\x80\x8D", "\xE2\x80\xAE", "\xE2\x81\xA0",
        "\xEF\xBB\xBF", "\xE3\x80\x80", "\xEF\xB8\x8F", "\xF3\xA0\x80\xA0"}) {
    std::string expected;
    for (const char* byte = c; *byte != 0; ++byte) expected += "\\x" + hex({byte, 1});
    EXPECT_EQ(escaped("a" + std::string(c) + ".tar"), "a" + expected + ".tar");
  }
  for (const char* c : {"\xC3\xA4", "\xD7\x90", "\xE4\xB8\xAD", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                        "\xC2\xA1", "\xEF\xBF\xBD"}) {
    EXPECT_EQ(escaped(c), c);
  }
}

TEST(TextTest, InQuotesCutsWhatIsLong) {
  EXPECT_EQ(in_quotes("a\nb"), "'a\\nb'");
  EXPECT_EQ(in_quotes(""), "''");
  const std::string fits(200, 'x');
  EXPECT_EQ(in_quotes(fits), "'" + fits + "'");
  const std::string cut = in_quotes(std::string(5000, 'a') + std::string(5000, 'z'));
  EXPECT_EQ(cut, "'" + std::string(100, 'a') + "..." + std::string(100, 'z') + "'");
  // If the text is cut within a character, the line must still be printable.
  std::string name(99, 'a');
  name += "\xE2\x82\xAC" + std::string(200, 'z');
  EXPECT_TRUE(is_utf8(in_quotes(name)));
}

TEST(TextTest, HexIsTwoDigitsAByte) {
  EXPECT_EQ(hex(""), "");
  EXPECT_EQ(hex("\x00\x0F\xA5\xFF"sv), "000fa5ff");
  EXPECT_TRUE(is_hex("0123456789abcdef"));
  EXPECT_TRUE(is_hex(""));
  EXPECT_FALSE(is_hex("0A"));
  EXPECT_FALSE(is_hex("0g"));
  EXPECT_FALSE(is_hex("0\0"sv));
}

TEST(TextTest, ParseInt64TakesAWholeDecimalNumberAndNothingElse) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  struct Case {
    std::string_view text;
    std::optional<std::int64_t> value;
  };
  for (const Case& c : {
           Case{"0", 0},
           Case{"-0", 0},
           Case{"7", 7},
           Case{"-12", -12},
           Case{"007", 7},
           Case{"9223372036854775807", kMax},
           Case{"-9223372036854775808", kMin},
           Case{"9223372036854775808", {}},
           Case{"-9223372036854775809", {}},
           Case{"99999999999999999999999", {}},
           Case{"", {}},
           Case{"-", {}},
           Case{"+1", {}},
           Case{"--1", {}},
           Case{" 1", {}},
           Case{"1 ", {}},
           Case{"1\n", {}},
           Case{"1.0", {}},
           Case{"1e3", {}},
           Case{"0x10", {}},
           Case{"1,000", {}},
           Case{"one", {}},
           Case{"1\0"sv, {}},
           Case{"\xD9\xA1", {}},
       }) {
    EXPECT_EQ(parse_int64(c.text), c.value) << escaped(c.text);
  }
}

TEST(TextTest, HumanBytesAreInPowersOf1024) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(831), "831 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.0 KiB");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(3ULL << 30), "3.0 GiB");
  EXPECT_EQ(human_bytes(std::numeric_limits<std::uint64_t>::max()), "16.0 EiB");
}

TEST(TextTest, HumanCountHasAGroupEveryThreeDigits) {
  EXPECT_EQ(counted(1, "sample"), "1 sample");
  EXPECT_EQ(counted(0, "sample"), "0 samples");
  EXPECT_EQ(counted(20'000, "shard"), "20,000 shards");
  EXPECT_EQ(counted(2, "class") + counted(2, "delivery"), "2 classes2 deliveries");
  EXPECT_EQ(counted(1, "shard", "is", "are"), "1 shard is");
  EXPECT_EQ(counted(2, "shard", "is", "are"), "2 shards are");
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1000), "1,000");
  EXPECT_EQ(human_count(1234567), "1,234,567");
  EXPECT_EQ(human_count(std::numeric_limits<std::uint64_t>::max()), "18,446,744,073,709,551,615");
}

}  // namespace
}  // namespace shardwise
