// Runs the commands of golden/*.txt and compares their outputs with these files.
// SHARDWISE_UPDATE_GOLDEN=1 rewrites the outputs: check the differences before you commit them.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {
namespace fs = std::filesystem;

#ifdef SHARDWISE_TRAIN
constexpr const char* kTrain = SHARDWISE_TRAIN;
#else
constexpr const char* kTrain = "";  // this build has no LibTorch
#endif

/// Printed before and after a command's exit code, which follows the command's output.
constexpr char kMark = '\1';

std::string folder() { return source_dir() + "/tests/tools/golden"; }

/// A step of a session: a command, its output and exit code, and the lines before it.
struct Step {
  std::string before;   ///< empty lines and comments before the command
  std::string command;  ///< empty in the part after the last command
  /// The last line is "[CODE]" if the exit code is not 0. Lines that are empty, or begin like a
  /// command, a comment or a "\\", have a "\\" in front.
  std::string output;
};

std::vector<Step> parsed(const std::string& text) {
  std::vector<Step> steps(1);
  bool is_output = false;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("$ ")) {
      if (!steps.back().command.empty()) steps.emplace_back();
      steps.back().command = line.substr(2) + "\n";
      is_output = true;
    } else if (line.starts_with("> ") && is_output) {
      steps.back().command += line.substr(2) + "\n";
    } else if (line.empty() || line.starts_with("# ")) {
      if (!steps.back().command.empty()) steps.emplace_back();
      steps.back().before += line + "\n";
      is_output = false;
    } else {
      steps.back().output += line + "\n";
    }
  }
  return steps;
}

std::string joined(const std::vector<Step>& steps) {
  std::string text;
  for (const Step& step : steps) {
    text += step.before;
    const char* prompt = "$ ";
    for (const std::string& line : lines_of(step.command)) {
      text += prompt + line + "\n";
      prompt = "> ";
    }
    text += step.output;
  }
  return text;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

/// Runs all commands in one shell. Sets the steps' outputs.
void run_all(std::vector<Step>& steps) {
  const TempDir dir;
  const std::string work = dir / "work";
  for (const char* name : {"work", "m", "home"}) fs::create_directory(dir / name);
  std::string script = read_file(folder() + "/helpers.sh") + "cd '" + work + "'\n";
  for (const Step& step : steps) {
    if (step.command.empty()) continue;
    script += step.command + "printf '" + kMark + "%d" + kMark + "' $?\n";
  }
  const Finished finished =
      run({"/usr/bin/env", "-i", "PATH=/usr/bin:/bin", "HOME=" + dir / "home", "LC_ALL=C.UTF-8",
           "TZ=UTC", "PROGRAM=" SHARDWISE_PROGRAM, std::string("TRAIN=") + kTrain, "/bin/sh", "-c",
           "exec 2>&1; eval \"$(cat)\""},
          script);
  std::string rest = finished.out;
  replace_all(rest, work, "DIR");
  replace_all(rest, dir.path(), "DIR/..");
  replace_all(rest, SHARDWISE_VERSION, "VERSION");
  // Replace parts that differ between runs.
  for (const auto& [what, name] :
       {std::pair{R"(\b[0-9.]+ (s\n|s; the index|ms: ))", "TIME $1"},
        std::pair{R"re("(seconds|built_at|attached_at)":("[^"]*"|[0-9.e-]+))re", "\"$1\":TIME"},
        std::pair{R"(\.[0-9a-f]{12}\.tmp)", ".RANDOM.tmp"},
        std::pair{R"(\.[0-9a-f]{16}\.table)", ".RANDOM.table"},
        std::pair{R"([0-9a-f]{32}\.idx)", "HASH.idx"}}) {
    rest = std::regex_replace(rest, std::regex(what), name);
  }
  for (Step& step : steps) {
    if (step.command.empty()) continue;
    const std::size_t end = rest.find(kMark);
    ASSERT_NE(end, std::string::npos) << "the shell ended in: " << step.command << rest;
    const std::size_t after = rest.find(kMark, end + 1);
    step.output.clear();
    for (const std::string& line : lines_of(rest.substr(0, end))) {
      const bool is_special = line.empty() || line[0] == '\\' || line[0] == '#' || line[0] == '$';
      step.output += (is_special ? "\\" : "") + line + "\n";
    }
    if (end > 0 && rest[end - 1] != '\n') step.output += "%\n";  // the last line has no line end
    const std::string code = rest.substr(end + 1, after - end - 1);
    if (code != "0") step.output += "[" + code + "]\n";
    rest.erase(0, after + 1);
  }
  EXPECT_EQ(rest, "");
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, TheProgramSaysThis) {
  if (fs::path(GetParam()).stem() == "train" && std::string_view(kTrain).empty()) {
    GTEST_SKIP() << "needs shardwise-train; skipped because this build has no LibTorch";
  }
  const std::string golden = read_file(GetParam());
  std::vector<Step> steps = parsed(golden);
  run_all(steps);
  const std::string now = joined(steps);
  if (std::getenv("SHARDWISE_UPDATE_GOLDEN") != nullptr && now != golden) {
    write_file(GetParam(), now);
    GTEST_SKIP() << "needs no SHARDWISE_UPDATE_GOLDEN; skipped because the file was just written";
  }
  EXPECT_EQ(now, golden);
  EXPECT_FALSE(std::regex_search(now, std::regex("[A-Z][A-Za-z]+::"))) << "a name of C++";
}

std::vector<std::string> sessions() {
  std::vector<std::string> paths;
  for (const auto& file : fs::directory_iterator(folder())) {
    if (file.path().extension() == ".txt") paths.push_back(file.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Session, GoldenTest, testing::ValuesIn(sessions()),
                         [](const auto& one) { return fs::path(one.param).stem().string(); });

}  // namespace
}  // namespace shardwise::test
