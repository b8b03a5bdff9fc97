// Tests the documents of the programs: the page cli.md, the manual pages, and the completions.

#include <wordexp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "help_page.h"
#include "process.h"
#include "program.h"
#include "support/python.h"
#include "train_options.h"

namespace shardwise::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tools::HelpTree;

/// The files that shardwise_manual writes.
class Pages {
 public:
  Pages() {
    const Finished finished = run({SHARDWISE_MANUAL, dir_.path()});
    EXPECT_EQ(finished.code, 0) << finished.err;
  }
  std::string operator/(const std::string& name) const { return dir_ / name; }
  std::vector<std::string> man_pages() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "man1")) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  TempDir dir_;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0;
}

/// Thrown when a command line is valid, in place of running the command.
struct Taken {};

/// Both programs. They only parse command lines, and run no commands.
struct Programs {
  Programs() {
    programs.push_back(tools::make_program(out));
    programs.push_back(train::make_program(options, [] { return std::string(); }));
    for (auto& program : programs) {
      program->parse_complete_callback([] { throw Taken(); });
    }
  }
  tools::Output out;
  train::Options options;
  std::vector<std::unique_ptr<CLI::App>> programs;
};

/// Returns the words of a command as a shell passes them to the program, without a launcher before
/// the program, and without a redirection of the output.
std::vector<std::string> words_of(std::string command, const std::string& program) {
  const std::size_t arrow = std::min(command.rfind(" > "), command.size());
  const auto end = command.begin() + static_cast<std::ptrdiff_t>(arrow);
  const bool is_quoted = std::count(command.begin(), end, '"') % 2 == 1;
  if (!is_quoted) command.erase(end, command.end());
  wordexp_t expanded{};
  EXPECT_EQ(::wordexp(command.c_str(), &expanded, WRDE_NOCMD | WRDE_UNDEF), 0) << command;
  std::vector<std::string> words(expanded.we_wordv, expanded.we_wordv + expanded.we_wordc);
  ::wordfree(&expanded);
  words.erase(words.begin(), std::find(words.begin(), words.end(), program));
  return words;
}

/// Expects that the program accepts the examples on a page and on the pages below.
/// @return  number of examples.
std::size_t expect_examples_parse(const HelpTree& tree, const std::string& program) {
  std::size_t count = 0;
  for (const std::string& example : tree.page.examples) {
    Programs fresh;
    const std::vector<std::string> words = words_of(example, program);
    EXPECT_FALSE(words.empty()) << example;
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    for (const auto& app : fresh.programs) {
      if (app->get_name() != program) continue;
      EXPECT_THROW(app->parse(static_cast<int>(argv.size()), argv.data()), Taken) << example;
      ++count;
    }
  }
  for (const HelpTree& command : tree.commands) count += expect_examples_parse(command, program);
  return count;
}

TEST(ManualTest, EveryExampleOfTheHelpIsTakenByItsProgram) {
  const Programs all;
  std::size_t count = 0;
  for (const auto& app : all.programs) {
    count += expect_examples_parse(tools::help_tree(*app), app->get_name());
  }
  EXPECT_GE(count, 25U);
}

TEST(ManualTest, EveryCommandHasAManualPageThatNamesItsOptionsAsTheCliPageDoes) {
  const Pages pages;
  const std::string cli = read_file(pages / "cli.md");
  const Programs all;
  std::vector<std::string> expected = {"shardwise-train.1", "shardwise.1"};
  for (const HelpTree& command : tools::help_tree(*all.programs[0]).commands) {
    std::string name = command.page.name;
    std::replace(name.begin(), name.end(), ' ', '-');
    expected.push_back(name + ".1");
    const std::string page = read_file(pages / ("man1/" + name + ".1"));
    EXPECT_THAT(cli, HasSubstr("\n## " + command.page.name + "\n"));
    for (const tools::HelpGroup& group : command.page.options) {
      for (const tools::HelpOption& option : group.options) {
        std::string roff = option.names.back();
        for (std::size_t at = 0; (at = roff.find('-', at)) != std::string::npos; at += 2) {
          roff.insert(at, "\\");
        }
        EXPECT_THAT(page, HasSubstr("\\fB" + roff + "\\fR"));
        EXPECT_THAT(cli, HasSubstr("`" + option.label() + "`"));
      }
    }
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(pages.man_pages(), expected);
}

TEST(ManualTest, ManFormatsThePagesWithoutAWarning) {
  if (std::system("man --version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "needs man; skipped because it is not installed";
  const Pages pages;
  ::setenv("LC_ALL", "C.UTF-8", 1);
  for (const std::string& name : pages.man_pages()) {
    const Finished finished =
        run({"/usr/bin/env", "man", "--warnings", "-E", "UTF-8", "-l", pages / ("man1/" + name)});
    EXPECT_EQ(finished.code, 0) << name;
    EXPECT_THAT(finished.err, IsEmpty()) << name;
    EXPECT_THAT(finished.out, HasSubstr("SYNOPSIS")) << name;
  }
}

TEST(ManualTest, MandocFindsNothingWrongInThePages) {
  if (!has_program("mandoc")) GTEST_SKIP() << "needs mandoc; skipped because it is not installed";
  const Pages pages;
  for (const std::string& name : pages.man_pages()) {
    const Finished finished =
        run({"/usr/bin/env", "mandoc", "-T", "lint", "-W", "warning", pages / ("man1/" + name)});
    // Manual pages contain no date, so that each build writes the same bytes.
    for (const std::string& line : lines_of(finished.out)) {
      EXPECT_THAT(line, HasSubstr("missing date")) << name;
    }
  }
}

/// Returns the shell's completion of each line. The working directory has a file and two folders.
std::vector<std::string> completed(const std::string& shell, const std::string& script,
                                   std::vector<std::string> lines) {
  const TempDir dir;
  write_file(dir / "train.idx", "");
  std::filesystem::create_directories(dir / "photos");
  lines.insert(lines.begin(), {shell, script});
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  std::vector<std::string> found = run_python("tests/tools/complete.py", lines);
  std::filesystem::current_path(before);
  return found;
}

TEST(CompletionTest, BashCompletesCommandsOptionsValuesAndFiles) {
  if (!has_python() || !has_program("bash"))
    GTEST_SKIP() << "needs python3 and bash; skipped because one is not installed";
  const Pages pages;
  EXPECT_THAT(
      completed("bash", pages / "bash/shardwise",
                {"shardwise in", "shardwise cache pr", "shardwise help exp",
                 "shardwise index --on-re", "shardwise cache prune --", "shardwise order --tail ",
                 "shardwise order --sampler=sha", "shardwise epoch --seed ", "shardwise info tr",
                 "shardwise pack --files ", "shardwise query train.idx --scr"}),
      ElementsAre("shardwise index info ", "shardwise cache prune ",
                  "shardwise help explain export ", "shardwise index --on-repeated-key ",
                  "shardwise cache prune --color --dry-run --help --json --to ",
                  "shardwise order --tail drop exact pad ", "shardwise order --sampler=sharded ",
                  "shardwise epoch --seed ", "shardwise info train.idx ",
                  "shardwise pack --files photos ", "shardwise query train.idx --scratch-bytes "));
  EXPECT_THAT(completed("bash", pages / "bash/shardwise-train",
                        {"shardwise-train --train tr", "shardwise-train --access "}),
              ElementsAre("shardwise-train --train train.idx ",
                          "shardwise-train --access map range read "));
}

TEST(CompletionTest, ZshCompletesThemToo) {
  if (!has_python() || !has_program("zsh"))
    GTEST_SKIP() << "needs python3 and zsh; skipped because one is not installed";
  const Pages pages;
  for (const char* name : {"zsh/_shardwise", "zsh/_shardwise-train"}) {
    const Finished parsed = run({"/usr/bin/env", "zsh", "-n", pages / name});
    EXPECT_EQ(parsed.code, 0) << parsed.err;
  }
  EXPECT_THAT(
      completed(
          "zsh", pages / "zsh/_shardwise",
          {"shardwise ind", "shardwise cache pr", "shardwise help exp", "shardwise index --on-re",
           "shardwise order --sampler sha", "shardwise info tr", "shardwise pack --files "}),
      ElementsAre("shardwise index ", "shardwise cache prune ", "shardwise help exp",
                  "shardwise index --on-repeated-key=", "shardwise order --sampler sharded ",
                  "shardwise info train.idx ", "shardwise pack --files photos/"));
}

TEST(CompletionTest, FishCompletesThemWithDescriptions) {
  if (!has_program("fish")) GTEST_SKIP() << "needs fish; skipped because it is not in PATH";
  const Pages pages;
  const TempDir dir;
  write_file(dir / "train.idx", "");
  std::filesystem::create_directories(dir / "photos");
  /// Returns the words that fish offers for a line, without their descriptions.
  const auto offered = [&](const std::string& line) {
    const Finished finished =
        run({"/usr/bin/env", "HOME=" + dir.path(), "fish", "--no-config", "-c",
             "cd '" + dir.path() + "'; source '" + pages / "fish/shardwise.fish" + "'; source '" +
                 pages / "fish/shardwise-train.fish" + "'; complete -C '" + line + "'"});
    EXPECT_EQ(finished.err, "") << line;
    std::vector<std::string> words;
    for (const std::string& word : lines_of(finished.out)) {
      words.push_back(word.substr(0, word.find('\t')));
    }
    std::ranges::sort(words);
    return words;
  };
  const std::pair<const char*, std::vector<std::string>> kLines[] = {
      {"shardwise ind", {"index"}},
      {"shardwise cache pr", {"prune"}},
      {"shardwise help exp", {"explain", "export"}},
      {"shardwise index --on-re", {"--on-repeated-key"}},
      {"shardwise cache prune --", {"--color", "--dry-run", "--help", "--json", "--to"}},
      {"shardwise order --tail ", {"drop", "exact", "pad"}},
      {"shardwise order --sampler=sha", {"--sampler=sharded"}},
      {"shardwise epoch --seed ", {}},
      {"shardwise index -o x.idx --json tr", {"train.idx"}},
      {"shardwise info tr", {"train.idx"}},
      {"shardwise pack --files ", {"photos/"}},
      {"shardwise query train.idx --scr", {"--scratch-bytes"}},
      {"shardwise-train --train tr", {"train.idx"}},
      {"shardwise-train --access ", {"map", "range", "read"}},
  };
  for (const auto& [line, expected] : kLines) EXPECT_EQ(offered(line), expected) << line;
}

}  // namespace
}  // namespace shardwise::test
