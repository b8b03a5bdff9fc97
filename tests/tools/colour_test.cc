// Tests colours: output on terminals has them, unless an option or a variable says otherwise.

#include "command_line.h"
#include "console.h"
#include "table.h"
#include "terminal.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using tools::Colours;

constexpr const char* kEscape = "\x1b[";

/// A stream, the variables, and the option; and whether text on the stream has colours.
struct Case {
  bool on_terminal;
  const char* no_color;
  const char* force;
  const char* terminal;
  Colours option;
  bool has_colours;
};

constexpr Case kCases[] = {
    {true, nullptr, nullptr, "xterm", Colours::kAuto, true},
    {true, nullptr, nullptr, nullptr, Colours::kAuto, true},
    {false, nullptr, nullptr, "xterm", Colours::kAuto, false},
    {true, nullptr, nullptr, "dumb", Colours::kAuto, false},
    {true, "1", nullptr, "xterm", Colours::kAuto, false},
    {true, "0", nullptr, "xterm", Colours::kAuto, false},  // any text counts
    {true, "", nullptr, "xterm", Colours::kAuto, true},    // but not an empty one
    {false, nullptr, "1", "xterm", Colours::kAuto, true},
    {false, nullptr, "1", "dumb", Colours::kAuto, true},
    {true, nullptr, "0", "xterm", Colours::kAuto, false},
    {false, nullptr, "", "xterm", Colours::kAuto, false},
    {false, "1", "1", "xterm", Colours::kAuto, false},
    {false, "1", nullptr, "dumb", Colours::kAlways, true},
    {true, nullptr, "1", "xterm", Colours::kNever, false},
};

class ColourTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!terminal_.is_open())
      GTEST_SKIP() << "needs a terminal; skipped because none can be opened";
  }
  void TearDown() override { tools::set_colours(Colours::kAuto); }

  const Terminal terminal_;
  const Variable no_color_{"NO_COLOR", nullptr};
  const Variable force_{"CLICOLOR_FORCE", nullptr};
  const Variable kind_{"TERM", "xterm"};
};

TEST_F(ColourTest, TheOptionComesBeforeTheVariablesAndTheseBeforeTheStream) {
  const TempDir dir;
  std::FILE* const file = std::fopen((dir / "file").c_str(), "w");
  for (const Case& one : kCases) {
    const Variable no_color("NO_COLOR", one.no_color);
    const Variable force("CLICOLOR_FORCE", one.force);
    const Variable kind("TERM", one.terminal);
    tools::set_colours(one.option);
    EXPECT_EQ(tools::has_colours(one.on_terminal ? terminal_.fd() : ::fileno(file)),
              one.has_colours)
        << &one - kCases;
  }
  std::fclose(file);
}

TEST_F(ColourTest, AnErrorIsRedAWarningYellowAndANoteBlue) {
  const int standard_error = ::dup(STDERR_FILENO);
  ::dup2(terminal_.fd(), STDERR_FILENO);
  for (const char* kind : {"error", "warning", "note"}) tools::say(kind, "text");
  ::dup2(standard_error, STDERR_FILENO);
  ::close(standard_error);
  EXPECT_EQ(terminal_.shown(),
            "shardwise: \x1b[1;31merror:\x1b[0m text\n"
            "shardwise: \x1b[1;33mwarning:\x1b[0m text\n"
            "shardwise: \x1b[1;36mnote:\x1b[0m text\n");
}

TEST_F(ColourTest, OnlyTheHeadOfATableIsBold) {
  tools::Output out(terminal_.fd());
  tools::Table table(out, {{"name"}, {"size", tools::Align::kRight}});
  table.add({"a", "12345"});
  table.finish();
  out.flush();
  EXPECT_EQ(terminal_.shown(), "\x1b[1mname   size\x1b[0m\na     12345\n");
}

TEST_F(ColourTest, EachStreamDecidesForItself) {
  const SmallIndex index;
  const auto [finished, screen] = on_terminal({"ls", index.path(), "--limit", "1"});
  EXPECT_THAT(screen, StartsWith(kEscape));
  // The program's standard error is not the terminal but a file.
  EXPECT_THAT(on_terminal({"ls", "none.idx"}).first.err, StartsWith("shardwise: error: "));
  EXPECT_THAT(on_terminal({"ls", "-h"}).second, HasSubstr("\x1b[1mUsage:\x1b[0m shardwise ls"));
  EXPECT_THAT(shardwise_output({"ls", index.path(), "--header"}), Not(HasSubstr(kEscape)));
}

TEST_F(ColourTest, TheOptionMayStandAnywhereAndCountsForErrorsBeforeIt) {
  const SmallIndex index;
  const std::string red = "shardwise: \x1b[1;31merror:\x1b[0m ";
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--color", "always", "info", "none.idx"},
                                             {"--color=always", "info", "none.idx"},
                                             {"info", "none.idx", "--color", "always"},
                                             {"info", "--limt", "none.idx", "--color=always"},
                                             {"--color", "always", "inof", "none.idx"}}) {
    EXPECT_THAT(shardwise(arguments).err, StartsWith(red)) << testing::PrintToString(arguments);
  }
  EXPECT_THAT(shardwise_output({"ls", index.path(), "--header", "--color", "always"}),
              StartsWith(kEscape));
  EXPECT_THAT(on_terminal({"ls", index.path(), "--color", "never"}).second,
              Not(HasSubstr(kEscape)));
  EXPECT_THAT(
      shardwise({"ls", index.path(), "--color", "red"}).err,
      AllOf(HasSubstr("--color: 'red' is not a choice"), HasSubstr("auto, always or never")));
}

}  // namespace
}  // namespace shardwise::test
