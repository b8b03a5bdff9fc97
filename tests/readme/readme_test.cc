// README.md: its first example is the one of core_example.cc, which is run here; its commands name
// what exists; and it is short. And docs/errors.md has every error. (tests/docs compiles the other
// examples, and checks links and commands.)

#include "support/support.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>

#include "shardwise/base/error.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {
namespace {

std::string between(const std::string& text, const std::string& open, const std::string& close,
                    std::size_t from = 0) {
  const std::size_t begin = text.find(open, from);
  if (begin == std::string::npos) return {};
  const std::size_t end = text.find(close, begin + open.size());
  return text.substr(begin + open.size(), end - begin - open.size());
}

TEST(ReadmeTest, ItsFirstExampleIsTheOneThatRuns) {
  const std::string source = test::source_dir();
  const std::string marker = "// [README]\n";
  const std::string code =
      between(test::read_file(source + "/tests/readme/core_example.cc"), marker, marker);
  ASSERT_FALSE(code.empty());
  EXPECT_THAT(test::read_file(source + "/README.md"),
              testing::HasSubstr("```cpp\n" + code + "```\n"));
}

TEST(ReadmeTest, IsShort) {
  const std::string readme = test::read_file(test::source_dir() + "/README.md");
  EXPECT_LE(std::count(readme.begin(), readme.end(), '\n'), 225)
      << "what is longer belongs on a page under docs/";
}

TEST(ReadmeTest, ItsFirstExampleRuns) {
  const test::TempDir dir;
  test::TarBuilder tar;
  for (int i = 0; i < 20; ++i) {
    const std::string key = std::to_string(i);
    tar.file(key + ".jpg", "not looked at").file(key + ".cls", std::to_string(i % 3));
  }
  test::write_file(dir / "t.tar", tar.end().bytes());
  build_index(dir / "t.idx", {dir / "t.tar"});
  const std::string command = std::string(SHARDWISE_CORE_EXAMPLE) + " " + (dir / "t.idx");
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::array<char, 100> line{};
  ASSERT_NE(std::fgets(line.data(), line.size(), pipe), nullptr);
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_STREQ(line.data(), "3 samples, 39 bytes\n") << "20 samples on 8 ranks: 3 for rank 0";
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
