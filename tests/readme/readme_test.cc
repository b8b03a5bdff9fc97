// Tests that the commands in README.md exist, that README.md is short, and that docs/errors.md
// lists every error. tests/docs and tests/python/test_pages.py run the examples, and check links
// and commands.

#include "support/support.h"

#include <unistd.h>

#include <algorithm>

#include "shardwise/base/error.h"

namespace shardwise {
namespace {

std::string between(const std::string& text, const std::string& open, const std::string& close,
                    std::size_t from = 0) {
  const std::size_t begin = text.find(open, from);
  if (begin == std::string::npos) return {};
  const std::size_t end = text.find(close, begin + open.size());
  return text.substr(begin + open.size(), end - begin - open.size());
}

TEST(ReadmeTest, IsShort) {
  const std::string readme = test::read_file(test::source_dir() + "/README.md");
  EXPECT_LE(std::count(readme.begin(), readme.end(), '\n'), 120)
      << "what is longer belongs on a page under docs/";
}

TEST(ReadmeTest, TheTwoCommandsComeFirstAndExist) {
  const std::string source = test::source_dir();
  const std::string readme = test::read_file(source + "/README.md");
  const std::string first_block = between(readme, "```sh\n", "```");
  for (const char* command : {"tools/demo.sh", "tools/test.sh"}) {
    EXPECT_THAT(first_block, testing::HasSubstr(command));
    EXPECT_EQ(::access((source + "/" + command).c_str(), X_OK), 0) << command;
  }
}

TEST(ErrorsPageTest, HasALineForEveryCode) {
  const std::string page = test::read_file(test::source_dir() + "/docs/errors.md");
  for (int i = 0; i <= static_cast<int>(ErrorCode::kFetch); ++i) {
    const std::string name(error_code_name(static_cast<ErrorCode>(i)));
    EXPECT_THAT(page, testing::AnyOf(testing::HasSubstr("| `" + name + "` |"),
                                     testing::HasSubstr("| `k" + name + "` |"),
                                     testing::HasSubstr("| `" + name + "Error` |")));
  }
}

}  // namespace
}  // namespace shardwise
