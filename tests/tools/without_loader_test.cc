// Tests `shardwise epoch --decode` of a program built without the loader.

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

TEST(WithoutLoaderTest, DecodingSaysSo) {
  const SmallIndex index;
  expect_failure(shardwise({"epoch", "--quiet", index.path(), "--decode", "rgb"}),
                 {"this program was built without the loader", "leave out --decode"});
  EXPECT_EQ(shardwise({"epoch", "--quiet", index.path()}).code, 0);
}

TEST(WithoutLoaderTest, OptionsOfTheLoaderAreRefused) {
  const SmallIndex index;
  for (const char* option : {"--threads", "--prefetch"}) {
    const Finished finished = shardwise({"epoch", "--quiet", index.path(), option, "2"});
    EXPECT_EQ(finished.code, 2);
    EXPECT_THAT(finished.err, testing::HasSubstr(std::string(option) +
                                                 ": this program was built without the loader"));
  }
}

}  // namespace
}  // namespace shardwise::test
