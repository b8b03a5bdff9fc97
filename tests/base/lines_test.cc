// Small text files of people: one reader for all of them.
#include "base/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/normal_path.h"
#include "support/support.h"

namespace shardwise {
namespace {

using namespace std::string_literals;
using test::error_code;
using test::error_text;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> read(const std::string& text) {
  const auto lines = lines_of(text, "the list", "'x.lst'");
  return {lines.begin(), lines.end()};
}

TEST(LinesTest, EveryEndOfALineAndAMarkAtTheFrontAreRead) {
  EXPECT_THAT(read("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(read("\xEF\xBB\xBF"
                   "a\r\nb\r\n"),
              ElementsAre("a", "b"));
  EXPECT_THAT(read("\xEF\xBB\xBF"), IsEmpty());
  EXPECT_THAT(read(""), IsEmpty());
  EXPECT_THAT(read("\n\n a \r"), ElementsAre("", "", " a ")) << "blanks may be of a name";
  EXPECT_THAT(read("a\xff\xc2\xa0\n"), ElementsAre("a\xff\xc2\xa0")) << "names are bytes";
  EXPECT_THAT(read("a\n\xEF\xBB\xBF"
                   "b"),
              ElementsAre("a",
                          "\xEF\xBB\xBF"
                          "b"));
}

TEST(LinesTest, WhatSeparatesByNulIsRefusedWithItsLine) {
  for (const std::string& text : {"ab\0cd\0"s, "abc\0"s, "3\0004\0"s, "3\0"s}) {
    EXPECT_THAT(error_text([&] { read(text); }),
                AllOf(HasSubstr("the list has a NUL byte: 'x.lst', line 1"), HasSubstr("-print0")));
  }
  EXPECT_THAT(error_text([] { read("a\nb\nc\0d"s); }), HasSubstr("'x.lst', line 3"));
}

TEST(LinesTest, OtherEncodingsAreNamed) {
  for (const std::string& text :
       {"\xFF\xFE"
        "a\0\n\0"s,
        "\xFE\xFF\0a\0\n"s, "a\0\n\0"s, "\0a\0\n"s, "\xFF\xFE\0\0a\0\0\0"s}) {
    EXPECT_THAT(error_text([&] { read(text); }),
                HasSubstr("the list is UTF-16 or UTF-32, not UTF-8: 'x.lst'; save it as UTF-8"));
  }
}

TEST(LinesTest, AFileWithoutAnEndIsRefused) {
  std::istringstream in(std::string(300'000, 'a'));
  EXPECT_EQ(read_text(in, 300'000, "the list", "'x'").size(), 300'000U);
  std::istringstream longer(std::string(300'001, 'a'));
  EXPECT_THAT(error_text([&] { read_text(longer, 300'000, "the list", "'x'"); }),
              HasSubstr("the list is larger than 293.0 KiB: 'x'"));
}

TEST(PathTest, WhatTheSystemWouldCutIsRefused) {
  EXPECT_STREQ(c_path("a/b"), "a/b");
  const std::string path = "c\0d"s;
  EXPECT_EQ(error_code([&] { c_path(path); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error_text([&] { c_path(path); }),
              HasSubstr("the path has a NUL character: 'c\\x00d'"));
}

}  // namespace
}  // namespace shardwise
