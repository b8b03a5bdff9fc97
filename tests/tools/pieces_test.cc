// Tests parts of the program by themselves: JSON text, progress, standard output.

#include <termios.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "fetch_options.h"
#include "output.h"
#include "progress.h"
#include "support/support.h"
#include "terminal.h"

namespace shardwise::tools {
namespace {

TEST(JsonTextTest, EveryByteOfTextSurvives) {
  std::string text;
  for (char c = 1; c < 127; ++c) text += c;
  text += '\0';
  text += "\x7f\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
  std::string json = "{";
  append_json_name(json, "key", text);
  json += "}";
  EXPECT_EQ(nlohmann::json::parse(json)["key"], text);
}

TEST(JsonTextTest, BytesThatAreNoTextAreHexadecimal) {
  std::string json;
  append_json_name(json, "key",
                   "\xff"
                   "a\n");
  EXPECT_EQ(json, R"("key_hex":"ff610a")");
}

TEST(CountedTest, TakesThePluralExceptForOne) {
  EXPECT_EQ(counted(0, "shard"), "0 shards");
  EXPECT_EQ(counted(1, "shard"), "1 shard");
  EXPECT_EQ(counted(2000, "shard"), "2,000 shards");
}

TEST(CheckServersTest, UrlsAreOnlyListedIfAnOptionIsGiven) {
  std::size_t num_lists = 0;
  const auto urls = [&] {
    ++num_lists;
    return std::vector<std::string>{"s3://bucket/0.tar"};
  };
  check_servers({}, urls, /*quiet=*/true);
  EXPECT_EQ(num_lists, 0U);
  check_servers({.headers = {"A: b"}}, urls, /*quiet=*/true);
  EXPECT_EQ(num_lists, 1U);
}

TEST(ProgressTest, BarShowsPartRateAndTimeLeft) {
  const ProgressState state{.done = 1 << 20,
                            .total = 4 << 20,
                            .unit = Unit::kBytes,
                            .seconds = 2,
                            .detail = "1 of 4 shards"};
  EXPECT_EQ(progress_bar("indexing", state, 100),
            "indexing [==========>                             ]  25 %  512.0 KiB/s  0:06 left  "
            "1 of 4 shards");
  EXPECT_EQ(progress_line("indexing", state),
            "indexing: 25 %, 512.0 KiB/s, 0:06 left, 1 of 4 shards");
}

TEST(ProgressTest, BarFitsAnyWidth) {
  const ProgressState state{
      .done = 5, .total = 9, .unit = Unit::kSamples, .seconds = 1.5, .detail = "d"};
  for (std::size_t width = 0; width < 200; ++width) {
    const std::string bar = progress_bar("packing", state, width);
    EXPECT_LE(bar.size(), width == 0 ? 0 : width - 1) << bar;
  }
}

TEST(ProgressTest, NothingDoneAndAllDoneAreWellFormed) {
  EXPECT_EQ(
      progress_line("packing",
                    {.done = 0, .total = 10, .unit = Unit::kSamples, .seconds = 0, .detail = ""}),
      "packing: 0 %, - samples/s, -:-- left");
  EXPECT_EQ(
      progress_line("packing",
                    {.done = 10, .total = 10, .unit = Unit::kSamples, .seconds = 5, .detail = ""}),
      "packing: 100 %, 2 samples/s, 0:05 so far");
  EXPECT_EQ(
      progress_line("packing",
                    {.done = 0, .total = 0, .unit = Unit::kSamples, .seconds = 1, .detail = ""}),
      "packing: 0 %, 0 samples/s, 0:01 so far");
  EXPECT_EQ(
      progress_line("packing",
                    {.done = 1, .total = 7202, .unit = Unit::kSamples, .seconds = 1, .detail = ""}),
      "packing: 0 %, 1 samples/s, 2:00:01 left");
}

/// A terminal that is standard error while it lives.
class ErrorsOnTerminal {
 public:
  ErrorsOnTerminal() : before_(::dup(STDERR_FILENO)) { ::dup2(terminal_.fd(), STDERR_FILENO); }
  ~ErrorsOnTerminal() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }
  ErrorsOnTerminal(const ErrorsOnTerminal&) = delete;
  ErrorsOnTerminal& operator=(const ErrorsOnTerminal&) = delete;

  bool is_open() const { return terminal_.is_open(); }
  std::string shown() const { return terminal_.shown(); }
  /// Waits until all of `texts` are shown, one behind another.
  void wait_for(const std::vector<std::string>& texts) { test::wait_for_texts(terminal_, texts); }

 private:
  const test::Variable kind_{"TERM", "xterm"};
  const test::Terminal terminal_{120};
  const int before_;
};

TEST(ProgressTest, ATerminalShowsTheTimeThatPassesWithoutUpdates) {
  ErrorsOnTerminal errors;
  if (!errors.is_open()) GTEST_SKIP() << "needs a terminal; skipped because none can be opened";
  Progress progress("packing", Unit::kSamples, /*quiet=*/false);
  errors.wait_for({"packing: 0:0", " so far", "packing: 0:0", " so far"});
  // Each update until one is drawn: those shortly after the bar was drawn are not.
  bool is_drawn = false;
  while (!is_drawn) {
    progress.update(5, 10, [&] {
      is_drawn = true;
      return std::string("half");
    });
  }
  errors.wait_for({" 50 %", "half", " 50 %", "half"});
  progress.update(10, 10, [] { return std::string("whole"); });
  errors.wait_for({"100 %", " so far  whole", "100 %", " so far  whole"});
}

TEST(ProgressTest, AnUpdateNeverWaitsForAStoppedTerminal) {
  ErrorsOnTerminal errors;
  if (!errors.is_open()) GTEST_SKIP() << "needs a terminal; skipped because none can be opened";
  ASSERT_EQ(::tcflow(STDERR_FILENO, TCOOFF), 0);
  {
    Progress progress("packing", Unit::kSamples, /*quiet=*/false);
    progress.update(5, 10, [] { return std::string("half"); });
  }
  ASSERT_EQ(::tcflow(STDERR_FILENO, TCOON), 0);
  EXPECT_EQ(errors.shown(), "");
}

}  // namespace
}  // namespace shardwise::tools
