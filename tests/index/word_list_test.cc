#include "index/word_list.h"

#include "support/support.h"

namespace shardwise {
namespace {

TEST(WordListTest, AnyBytesComeBack) {
  const std::vector<std::string> words = {
      "", "a/*.tar", "\"quoted\\\n", "latin\xe9", std::string("\xff\0", 2), "\xc3\xa9"};
  EXPECT_EQ(words_to_json(words),
            R"(["","a/*.tar","\"quoted\\\n",{"hex":"6c6174696ee9"},{"hex":"ff00"},"é"])");
  EXPECT_EQ(words_from_json(words_to_json(words)), words);
  EXPECT_EQ(words_from_json("[]"), std::vector<std::string>());
}

TEST(WordListTest, AnythingElseIsRefused) {
  for (const char* json : {"", "{}", "7", "\"x\"", "[1]", "[{}]", "[{\"hex\":\"4\"}]",
                           "[{\"hex\":\"xy\"}]", "[\"a\"", "[null]"}) {
    EXPECT_EQ(test::error_code([&] { words_from_json(json); }), ErrorCode::kInvalidArgument)
        << json;
  }
}

}  // namespace
}  // namespace shardwise
