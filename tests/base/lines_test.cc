// Tests of the reader of small text files that people write.
#include "base/lines.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "base/cancel_scope.h"
#include "base/normal_path.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using namespace std::string_literals;
using test::error_code;
using test::error_text;
using test::TempDir;
using test::write_file;
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
                AllOf(HasSubstr("NUL byte: 'x.lst', line 1"), HasSubstr("-print0")));
  }
  EXPECT_THAT(error_text([] { read("a\nb\nc\0d"s); }), HasSubstr("'x.lst', line 3"));
}

TEST(LinesTest, OtherEncodingsAreNamed) {
  for (const std::string& text :
       {"\xFF\xFE"
        "a\0\n\0"s,
        "\xFE\xFF\0a\0\n"s, "a\0\n\0"s, "\0a\0\n"s, "\xFF\xFE\0\0a\0\0\0"s}) {
    EXPECT_THAT(
        error_text([&] { read(text); }),
        AllOf(HasSubstr("UTF-16 or UTF-32"), HasSubstr("'x.lst'"), HasSubstr("save it as UTF-8")));
  }
}

TEST(LinesTest, AFileWithoutAnEndIsRefused) {
  const TempDir dir;
  write_file(dir / "x", std::string(300'000, 'a'));
  EXPECT_EQ(read_text(dir / "x", 300'000, "the list").size(), 300'000U);
  EXPECT_THAT(error_text([&] { read_text(dir / "x", 299'999, "the list"); }),
              HasSubstr("larger than 293.0 KiB: '" + (dir / "x") + "'"));
  EXPECT_THAT(error_text([] { read_text("/dev/zero", 300'000, "the list"); }),
              HasSubstr("larger than 293.0 KiB: '/dev/zero'"));
  EXPECT_THAT(error_text([&] { read_text(dir.path(), 300'000, "the list"); }),
              HasSubstr("a directory"));
}

TEST(LinesTest, APipeIsReadToItsEndHoweverSlowItsWriterIs) {
  const TempDir dir;
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  auto text = std::async(std::launch::async, [&] { return read_text(fifo, 100, "the list"); });
  const int writer = ::open(fifo.c_str(), O_WRONLY | O_CLOEXEC);
  for (const char letter : {'a', 'b', 'c'}) {
    // Longer than read_text() waits at a time.
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    ASSERT_EQ(::write(writer, &letter, 1), 1);
  }
  ::close(writer);
  EXPECT_EQ(text.get(), "abc");
}

TEST(LinesTest, WhoWaitsForAPipeHearsThatItIsCancelled) {
  const TempDir dir;
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  CancelToken::Flag flag{false};
  auto code = std::async(std::launch::async, [&] {
    const detail::CancelScope scope(flag);
    return error_code([&] { read_text(fifo, 100, "the list"); });
  });
  // Returns when read_text() has opened the pipe.
  const int writer = ::open(fifo.c_str(), O_WRONLY | O_CLOEXEC);
  flag = true;
  EXPECT_EQ(code.get(), ErrorCode::kCancelled);
  ::close(writer);
}

TEST(LinesTest, AWaitThatTheSystemRefusesIsAnError) {
  if (test::kSanitized)
    GTEST_SKIP()
        << "needs a build without sanitizers; skipped because they open files of their own";
  EXPECT_THAT(test::in_child([]() -> std::string {
                const test::AtMost seconds(10);
                test::set_limit(RLIMIT_NOFILE, 0);  // poll(2) of one descriptor is then EINVAL
                return error_text([] { read_text("", 100, "the list"); });
              }),
              AllOf(HasSubstr("cannot read the list"), HasSubstr("standard input")));
}

TEST(PathTest, AWorkingDirectoryThatWasRemovedIsNotFound) {
  const TempDir dir;
  EXPECT_EQ(test::in_child([&]() -> std::string {
              const std::string gone = dir / "gone";
              if (::mkdir(gone.c_str(), 0700) != 0 || ::chdir(gone.c_str()) != 0)
                return "no folder";
              const std::string above = std::filesystem::canonical(dir.path()).string();
              if (normal_absolute_path("../x") != above + "/x") return "another path";
              ::rmdir(gone.c_str());
              return error_code([] { normal_absolute_path("x"); }) == ErrorCode::kNotFound
                         ? ""
                         : "another error";
            }),
            "");
}

TEST(PathTest, WhatTheSystemWouldCutIsRefused) {
  EXPECT_STREQ(c_path("a/b"), "a/b");
  const std::string path = "c\0d"s;
  EXPECT_EQ(error_code([&] { c_path(path); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error_text([&] { c_path(path); }), HasSubstr("NUL character: 'c\\x00d'"));
}

}  // namespace
}  // namespace shardwise
