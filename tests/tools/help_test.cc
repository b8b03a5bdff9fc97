// Tests help, versions, mistyped names and wrong usage.

#include <fcntl.h>

#include <cstdlib>

#include "command_line.h"
#include "shardwise_program.h"
#include "text_layout.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::vector<std::string> kCommands = {
    "index",  "merge", "attach", "info",    "ls",   "cat",  "verify", "query", "export", "pack",
    "repack", "cache", "order",  "explain", "when", "plan", "epoch",  "help",  "version"};

TEST(HelpTest, TheHelpCommandShowsWhatTheOptionDoes) {
  EXPECT_EQ(shardwise_output({"help"}), shardwise_output({"--help"}));
  EXPECT_EQ(shardwise_output({"help", "cache", "prune"}),
            shardwise_output({"cache", "prune", "--help"}));
  for (const std::string& command : kCommands) {
    EXPECT_EQ(shardwise_output({"help", command}), shardwise_output({command, "--help"}))
        << command;
  }
}

/// The options that a help lists, by their first names.
std::vector<std::string> options_in(const std::string& help) {
  std::vector<std::string> names;
  for (const std::string& line : lines_of(help)) {
    if (line.starts_with("  -")) names.push_back(line.substr(2, line.find_first_of(" ,", 2) - 2));
  }
  return names;
}

TEST(HelpTest, TheShortHelpHasTheCommonOptionsOfTheWholeOne) {
  for (const std::string& command : kCommands) {
    const std::string whole = shardwise_output({command, "--help"});
    const std::string brief = shardwise_output({command, "-h"});
    const std::vector<std::string> all = options_in(whole), common = options_in(brief);
    EXPECT_THAT(all, testing::IsSupersetOf(common)) << command;
    EXPECT_THAT(common, testing::IsSupersetOf({"-h", "--help"})) << command;
    EXPECT_LE(common.size(), 14U) << command;
    EXPECT_LE(lines_of(brief).size(), 36U) << command;
    const bool is_whole = common.size() == all.size();
    EXPECT_NE(brief.find("--help` shows all " + std::to_string(all.size()) + " options") ==
                  std::string::npos,
              !is_whole && command != "cache")
        << brief;
  }
  EXPECT_THAT(options_in(shardwise_output({"index", "-h"})),
              testing::UnorderedElementsAre("-o", "--threads", "--on-bad", "--column", "--hash",
                                            "--dry-run", "--quiet", "--json", "-h", "--help"));
}

TEST(HelpTest, WithoutACommandTheCommandsAreListedOnStandardError) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{}, {"--color", "never"}, {"cache"}}) {
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, 2);
    EXPECT_THAT(finished.out, testing::IsEmpty());
    std::vector<std::string> asking = arguments;
    asking.push_back("-h");
    EXPECT_EQ(finished.err, shardwise_output(asking));
    EXPECT_THAT(finished.err, HasSubstr("  verify  "));
  }
}

TEST(HelpTest, InAPipeItIsFoldedAtEightyColumns) {
  std::vector<std::vector<std::string>> calls = {{"--help"}};
  for (const std::string& command : kCommands) {
    calls.push_back({command, "-h"});
    calls.push_back({"help", command});
  }
  for (const auto& call : calls) {
    for (const std::string& line : lines_of(shardwise_output(call))) {
      EXPECT_LE(tools::display_width(line), 80U) << line;
    }
  }
}

TEST(HelpTest, ColumnsDecidesHowWideItIs) {
  ::setenv("COLUMNS", "50", 1);
  const std::string narrow = shardwise_output({"help", "index"});
  ::setenv("COLUMNS", "200", 1);
  const std::string wide = shardwise_output({"help", "index"});
  ::unsetenv("COLUMNS");
  EXPECT_LT(lines_of(wide).size(), lines_of(narrow).size());
  EXPECT_THAT(wide,
              HasSubstr("Build an index, or update it without reading unchanged shards again\n"));
}

TEST(HelpTest, CommonOptionsComeFirstAndOthersInGroups) {
  const std::string help = shardwise_output({"help", "index"});
  const std::size_t usual = help.find("\nOptions:\n");
  const std::size_t remote = help.find("\nRemote and compressed shards:\n");
  ASSERT_NE(usual, std::string::npos);
  ASSERT_NE(remote, std::string::npos);
  EXPECT_LT(usual, help.find("  --threads N"));
  EXPECT_LT(help.find("  --threads N"), remote);
  EXPECT_LT(remote, help.find("  --cache DIR"));
  EXPECT_THAT(help, AllOf(HasSubstr("Usage: shardwise index -o INDEX [OPTION...] [SOURCE...]\n"),
                          HasSubstr("--on-bad error|skip"), HasSubstr("`README`"),
                          HasSubstr("A SIZE is a number of bytes, or a number with a unit")));
}

TEST(HelpTest, WhatDoesNotFitOnTheDiskIsAnError) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"--help"}, {"help", "index"}, {"ls", "-h"}, {"--version"}, {"version", "--json"}}) {
    std::vector<std::string> command = arguments;
    command.insert(command.begin(), SHARDWISE_PROGRAM);
    const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full < 0) GTEST_SKIP() << "needs /dev/full; skipped because it does not exist";
    const Finished finished = Process(command, "", full).wait();
    ::close(full);
    EXPECT_EQ(finished.code, 1) << testing::PrintToString(arguments);
    EXPECT_THAT(finished.err, HasSubstr("standard output"));
  }
}

TEST(VersionTest, NamesAlgorithmsFormatsAndLibraries) {
  const std::string text = shardwise_output({"--version"});
  EXPECT_EQ(lines_of(text)[0], "shardwise " SHARDWISE_VERSION);
  EXPECT_THAT(text,
              AllOf(HasSubstr("permutation 1"), HasSubstr("index 4"), HasSubstr("resume token 2"),
                    HasSubstr("checkpoint 2"), HasSubstr("sqlite 3."), HasSubstr("curl "),
                    HasSubstr("libarchive "), HasSubstr("shardwise-train")));
  EXPECT_EQ(shardwise_output({"-V"}), text);
  EXPECT_EQ(shardwise_output({"version"}), text);
  const auto json = nlohmann::json::parse(shardwise_output({"version", "--json"}));
  EXPECT_EQ(json["version"], SHARDWISE_VERSION);
  EXPECT_EQ(json["formats"]["index"], 4);
  EXPECT_EQ(json["algorithms"]["epoch_order"], 1);
  EXPECT_THAT(json["libraries"]["sqlite"].get<std::string>(), StartsWith("3."));
}

TEST(NearestNameTest, IsNearEnoughToBeMeant) {
  const std::vector<std::string> names = {"index", "info", "verify", "--limit", "--shard", "-o"};
  EXPECT_EQ(tools::nearest_name("indxe", names), "index");
  EXPECT_EQ(tools::nearest_name("ver", names), "verify");
  EXPECT_EQ(tools::nearest_name("--shrad", names), "--shard");
  EXPECT_EQ(tools::nearest_name("xyzzy", names), std::nullopt);
  EXPECT_EQ(tools::nearest_name("-x", names), std::nullopt);
  EXPECT_EQ(tools::nearest_name("", names), std::nullopt);
}

TEST(NearestNameTest, TheCommandOfThePythonPackageIsNamed) {
  const std::string where = "no command 'report'; in Python, it is `python -m shardwise report`;";
  EXPECT_THAT(shardwise({"report", "x.idx"}).err, HasSubstr(where));
  EXPECT_THAT(shardwise({"help", "report"}).err, HasSubstr(where));
  EXPECT_THAT(shardwise({"cache", "report"}).err, Not(HasSubstr("Python")));
}

TEST(TextLayoutTest, CutsBetweenCharacters) {
  EXPECT_EQ(tools::cut_to_width("abcdef", 6), "abcdef");
  EXPECT_EQ(tools::cut_to_width("abcdef", 4), "abc\xe2\x80\xa6");
  EXPECT_EQ(tools::cut_to_width("abcdef", 4, tools::Cut::kStart),
            "\xe2\x80\xa6"
            "def");
  const std::string accents = "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9";
  EXPECT_EQ(tools::display_width(accents), 4U);
  EXPECT_EQ(tools::cut_to_width(accents, 3), "\xc3\xa9\xc3\xa9\xe2\x80\xa6");
  EXPECT_EQ(tools::display_width("\xe6\xbc\xa2\xe5\xad\x97"), 4U) << "two wide characters";
  EXPECT_EQ(tools::cut_to_width("\xe6\xbc\xa2\xe5\xad\x97", 3), "\xe6\xbc\xa2\xe2\x80\xa6");
  for (std::size_t width = 0; width < 12; ++width) {
    const std::string cut = tools::cut_to_width("\xf0\x9f\x98\x80 caf\xe9 e\xcc\x81x", width);
    EXPECT_LE(tools::display_width(cut), width) << width;
  }
}

TEST(TextLayoutTest, FoldsWordsAndCommands) {
  EXPECT_EQ(tools::folded("one two three", 7), "one two\nthree");
  EXPECT_EQ(tools::folded("one two three", 9, 2), "one two\n  three");
  EXPECT_EQ(tools::folded("one\ntwo", 80, 2), "one\n  two");
  EXPECT_EQ(tools::folded("longerthanit", 4), "longerthanit");
  EXPECT_EQ(tools::folded_command("  run --one 'a b c' --two", 20),
            "  run --one \\\n      'a b c' \\\n      --two");
}

}  // namespace
}  // namespace shardwise::test
