// Tests that comments are at most as wide as code, because the formatter does not wrap them.
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

}  // namespace
}  // namespace shardwise::test
