#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/support.h"

namespace shardwise::test {

// Runs the Python programs of the tests. They were written only from the pages of docs/formats.

inline bool has_python() { return std::system("python3 --version >/dev/null 2>&1") == 0; }

/// Runs a Python program with these arguments and this standard input. Returns the lines that it
/// prints. Arguments must not contain single quotes. The test fails if the program fails.
inline std::vector<std::string> run_python(const std::string& program,
                                           const std::vector<std::string>& words,
                                           const std::string& input = {}) {
  const TempDir dir;
  write_file(dir / "input", input);
  std::string command = "python3 -B '" + source_dir() + "/" + program + "'";
  for (const std::string& word : words) command += " '" + word + "'";
  command += " < '" + (dir / "input") + "'";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::string text;
  std::array<char, 65536> buffer;
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), size);
  }
  EXPECT_EQ(::pclose(pipe), 0) << command;
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos;
       begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

/// Asks the Python implementation, answer() of tests/order/answer.py, about each request. Returns
/// its answers: {"is": ...}, or {"refused": why}.
inline std::vector<nlohmann::json> answers(const std::vector<nlohmann::json>& requests) {
  std::string input;
  for (const nlohmann::json& request : requests) input += request.dump() + "\n";
  std::vector<nlohmann::json> found;
  for (const std::string& line : run_python("tests/order/answer.py", {"--batch"}, input)) {
    found.push_back(nlohmann::json::parse(line));
  }
  if (found.size() == requests.size()) return found;
  throw std::runtime_error("not an answer to each request");
}

/// Collects requests together with the library's or the program's answers, to compare them with
/// those of the Python implementation.
class Questions {
 public:
  void ask(nlohmann::json request, nlohmann::json expected) {
    requests_.push_back(std::move(request));
    expected_.push_back(std::move(expected));
  }
  /// Adds a request that the Python implementation must refuse.
  void ask_refused(nlohmann::json request) { ask(std::move(request), nullptr); }

  /// @param at_least  minimum number of requests that must be answered and not refused.
  void expect_one_answer(std::size_t at_least) const {
    const std::vector<nlohmann::json> found = answers(requests_);
    std::size_t answered = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const bool refused = found[i].contains("refused");
      EXPECT_EQ(refused, expected_[i].is_null()) << found[i] << " to " << requests_[i];
      if (refused) continue;
      EXPECT_EQ(found[i]["is"], expected_[i]) << requests_[i];
      ++answered;
    }
    EXPECT_GE(answered, at_least) << "of " << found.size();
  }

 private:
  std::vector<nlohmann::json> requests_;
  std::vector<nlohmann::json> expected_;
};

}  // namespace shardwise::test
