#include "shardwise/tar/sample_name.h"

#include "support/support.h"

namespace shardwise {
namespace {

TEST(SampleNameTest, TheBasenameIsCutAtItsFirstDot) {
  const struct {
    std::string name, key, field;
  } cases[] = {
      {"000.jpg", "000", "jpg"},     {"a/b/000.seg.png", "a/b/000", "seg.png"},
      {"./x.cls", "./x", "cls"},     {"dir.d/x.JPG", "dir.d/x", "JPG"},
      {"a.b/c.d.e", "a.b/c", "d.e"}, {"/abs/x.txt", "/abs/x", "txt"},
      {"x..txt", "x", ".txt"},       {std::string("\xff\x01.bin"), "\xff\x01", "bin"},
  };
  for (const auto& c : cases) {
    const auto name = split_sample_name(c.name);
    ASSERT_TRUE(name) << c.name;
    EXPECT_EQ(name->key, c.key);
    EXPECT_EQ(name->field, c.field);
  }
}

TEST(SampleNameTest, NamesOfNoSample) {
  for (const char* name :
       {"", "README", "dir.d/README", ".hidden", "dir/.DS_Store", "x.", "dir/"}) {
    EXPECT_FALSE(split_sample_name(name)) << name;
  }
}

}  // namespace
}  // namespace shardwise
