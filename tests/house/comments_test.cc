// Tests that comments are at most as wide as code, because the formatter does not wrap them.
// Tests that each test that may be skipped says why.
#include <filesystem>
#include <sstream>

#include "support/support.h"

namespace shardwise::test {
namespace {
namespace fs = std::filesystem;

constexpr std::size_t kColumns = 100;

/// Returns the numbers, from 1, of comment lines in `text` that are too long.
std::vector<int> long_comments(const std::string& text) {
  std::vector<int> found;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (line.size() > kColumns && begin != std::string::npos && line.compare(begin, 2, "//") == 0) {
      found.push_back(number);
    }
  }
  return found;
}

TEST(CommentsTest, TooLongOnesAreFound) {
  const std::string word(kColumns - 3, 'x');
  EXPECT_THAT(long_comments("// " + word + "\n  // " + word + "\nx(\"" + word + "\")\n"),
              testing::ElementsAre(2));
}

TEST(CommentsTest, NoneIsTooLong) {
  const fs::path root = source_dir();
  std::size_t num_files = 0;
  for (const char* folder :
       {"include", "src", "python", "tools", "tests", "bench", "fuzz", "examples"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = entry.path();
      if (!path.ends_with(".h") && !path.ends_with(".cc")) continue;
      ++num_files;
      EXPECT_THAT(long_comments(read_file(path)), testing::IsEmpty()) << path;
    }
  }
  EXPECT_GT(num_files, 100U);
}

/// Returns the statements in `text` that skip a test without "skipped because".
std::vector<std::string> unexplained_skips(const std::string& text) {
  std::vector<std::string> found;
  for (const char* skip : {"GTEST_SKIP()", "pytest.skip(", "importorskip(", "mark.skipif("}) {
    for (std::size_t at = text.find(skip); at != std::string::npos; at = text.find(skip, at + 1)) {
      const std::string statement = text.substr(at, text.find_first_of(";\n", at + 90) - at);
      const bool is_explained = statement.find("skipped because") != std::string::npos ||
                                statement.find("<< kWhySkipped") != std::string::npos;
      if (!is_explained) found.push_back(statement);
    }
  }
  return found;
}

TEST(SkipsTest, EachSaysWhy) {
  EXPECT_THAT(unexplained_skips("GTEST_SKIP() << \"no fish here\";\n"), testing::SizeIs(1));
  std::size_t num_files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir() + "/tests")) {
    const std::string path = entry.path();
    if (path.ends_with("comments_test.cc")) continue;
    if (!path.ends_with(".h") && !path.ends_with(".cc") && !path.ends_with(".py")) continue;
    ++num_files;
    EXPECT_THAT(unexplained_skips(read_file(path)), testing::IsEmpty()) << path;
  }
  EXPECT_GT(num_files, 100U);
}

}  // namespace
}  // namespace shardwise::test
