#include "storage/pipe_fetcher.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "storage/fetch_support.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using test::error_text;
using test::same;
using test::StringSink;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Fetchers::Options with_pipes() {
  Fetchers::Options options = test::quick_options();
  options.allow_pipe = true;
  return options;
}

class PipeFetcherTest : public ::testing::Test {
 protected:
  std::string fetched(const Fetcher::Request& request) {
    StringSink sink;
    fetchers_.fetch(request, sink);
    return sink.bytes;
  }
  std::string text_of(const Fetcher::Request& request) {
    return error_text([&] { fetched(request); });
  }

  test::TempDir dir_;
  Fetchers fetchers_{with_pipes()};
};

std::vector<std::string> words(std::string_view command) { return split_command(command, "pipe:"); }

TEST(SplitCommandTest, WordsAreSplitAtBlanksAndHeldTogetherByQuotes) {
  EXPECT_THAT(words("  cat  a b "), ElementsAre("cat", "a", "b"));
  EXPECT_THAT(words("cat 'a  b'\"c d\"e"), ElementsAre("cat", "a  bc de"));
  EXPECT_THAT(words(R"(x a\ b \\ \" '\' "\"" '"' "'")"),
              ElementsAre("x", "a b", "\\", "\"", "\\", "\"", "\"", "'"));
  EXPECT_THAT(words("x '' \"\""), ElementsAre("x", "", ""));
  EXPECT_THAT(words("x $HOME ~ * `y` $(z) | > f ; && #"),
              ElementsAre("x", "$HOME", "~", "*", "`y`", "$(z)", "|", ">", "f", ";", "&&", "#"));
}

TEST(SplitCommandTest, MalformedCommandsAreRefused) {
  for (const char* bad :
       {"", "  ", "cat 'a", "cat \"a", "cat a\\", "cat a\nrm b", "cat\ta", "''"}) {
    EXPECT_EQ(error_code([&] { words(bad); }), ErrorCode::kInvalidArgument) << bad;
  }
  EXPECT_THAT(
      error_text([] { split_command("cat 'x", "pipe:cat 'x"); }),
      AllOf(HasSubstr("malformed: 'pipe:cat ***'"), HasSubstr("quote"), HasSubstr("pipe:program")));
}

// Fault under test: tests/faults.md 43.
TEST_F(PipeFetcherTest, Row43_NoCommandRunsUnlessAllowed) {
  const std::string sentinel = dir_ / "sentinel";
  StringSink sink;
  const Fetchers cautious(test::quick_options());
  for (const std::string command : {"pipe:touch ", "PIPE:touch ", "|touch "}) {
    const Fetcher::Request request{.url = command + sentinel};
    EXPECT_THAT(error_text([&] { cautious.fetch(request, sink); }),
                AllOf(HasSubstr("not run: 'pipe:touch ***'; "), Not(HasSubstr(sentinel)),
                      HasSubstr("Fetchers::Options::allow_pipe")));
    EXPECT_EQ(error_code([&] { cautious.stat(request); }), ErrorCode::kUnsupported);
  }
  EXPECT_FALSE(std::filesystem::exists(sentinel));
  EXPECT_EQ(fetched({.url = "pipe:touch " + sentinel}), "");
  EXPECT_TRUE(std::filesystem::exists(sentinel));
}

// Fault under test: tests/faults.md 43.
TEST_F(PipeFetcherTest, Row43_ThereIsNoShell) {
  const std::string sentinel = dir_ / "sentinel";
  for (const std::string tail :
       {"; touch ", "$(touch ", "`touch ", "| touch ", "&& touch ", "> "}) {
    EXPECT_THAT(fetched({.url = "pipe:echo a " + tail + sentinel}), HasSubstr(sentinel));
  }
  EXPECT_FALSE(std::filesystem::exists(sentinel));
  EXPECT_EQ(error_code([&] { fetched({.url = "pipe:echo a\ntouch " + sentinel}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(sentinel));
}

TEST_F(PipeFetcherTest, BringsWhatTheCommandPrints) {
  const std::string body = test::some_bytes(2'000'000);
  test::write_file(dir_ / "a b", body);
  const std::string url = "pipe:cat '" + (dir_ / "a b") + "'";
  EXPECT_TRUE(same(fetched({.url = url}), body));
  EXPECT_TRUE(same(fetched({.url = url, .range = {5, 500'000}}), body.substr(5, 499'995)));
  EXPECT_TRUE(
      same(fetched({.url = url, .range = {1'999'999, std::nullopt}}), body.substr(1'999'999)));
  EXPECT_EQ(fetched({.url = "pipe:cat"}), "");  // standard input is empty
  EXPECT_EQ(fetchers_.stat({.url = url}).size_bytes, std::nullopt);
  EXPECT_THAT(text_of({.url = url, .range = {0, 2'000'001}}), HasSubstr("only 2,000,000 bytes"));
}

TEST_F(PipeFetcherTest, ARangeThatIsFullEndsTheCommand) {
  EXPECT_EQ(fetched({.url = "pipe:yes", .range = {0, 4}}), "y\ny\n");
}

TEST_F(PipeFetcherTest, AFailureIsToldWithItsStatusAndLastWords) {
  const std::string missing = dir_ / "none";
  EXPECT_THAT(text_of({.url = "pipe:cat " + missing}),
              AllOf(HasSubstr("cannot fetch: 'pipe:cat ***'"), HasSubstr("status 1: 'cat: "),
                    HasSubstr("by hand")));
  EXPECT_THAT(text_of({.url = "pipe:sh -c 'echo a >&2; printf \"b\\tc\\n\" >&2; exit 7'"}),
              AllOf(HasSubstr("cannot fetch: 'pipe:sh ***'"), HasSubstr("status 7: 'b\\tc')")));
  EXPECT_THAT(text_of({.url = "pipe:sh -c 'kill -9 $$'"}), HasSubstr("killed by signal 9"));
  EXPECT_THAT(text_of({.url = "pipe:no-such-program-here --token sesame"}),
              AllOf(HasSubstr("'pipe:no-such-program-here ***'"), HasSubstr("cannot be run: "),
                    HasSubstr("without a shell"), Not(HasSubstr("sesame"))));
}

TEST_F(PipeFetcherTest, CancelEndsTheCommand) {
  const std::string running = dir_ / "running";
  for (const std::string output : {"", "exec >&-; "}) {  // open, or ended
    for (const std::string rest : {"exec sleep 100000", "exec yes >&2"}) {
      const std::string url = "pipe:sh -c '" + output + "touch " + running + "; " + rest + "'";
      std::atomic<bool> cancel{false};
      std::thread canceller([&] {
        while (!std::filesystem::remove(running)) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        cancel = true;
      });
      EXPECT_EQ(error_code([&] { fetched({.url = url, .cancel = &cancel}); }),
                ErrorCode::kCancelled)
          << url;
      canceller.join();
    }
  }
}

TEST_F(PipeFetcherTest, ACommandMayComplainLongAfterItsOutputEnded) {
  EXPECT_THAT(
      text_of({.url = "pipe:sh -c 'exec >&-; sleep 0.3; yes b | head -c 300000 >&2; exit 7'"}),
      HasSubstr("status 7: 'b')"));
}

TEST_F(PipeFetcherTest, AnUnknownStatusIsNoSuccess) {
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGCHLD, &ignore, &before), 0);
  for (const std::string command : {"pipe:false", "pipe:sh -c 'echo a; exit 7'"}) {
    EXPECT_THAT(text_of({.url = command}),
                AllOf(HasSubstr("cannot fetch: "), HasSubstr("SIG_DFL")));
  }
  EXPECT_EQ(fetched({.url = "pipe:echo a", .range = {0, 2}}), "a\n");  // needs no status
  ASSERT_EQ(::sigaction(SIGCHLD, &before, nullptr), 0);
}

TEST_F(PipeFetcherTest, NothingIsLeftOpen) {
  fetched({.url = "pipe:echo a"});
  const std::size_t before = test::num_open_descriptors();
  for (int i = 0; i < 5; ++i) {
    fetched({.url = "pipe:echo a"});
    text_of({.url = "pipe:false"});
    text_of({.url = "pipe:no-such-program-here"});
  }
  EXPECT_EQ(test::num_open_descriptors(), before);
}

}  // namespace
}  // namespace shardwise
