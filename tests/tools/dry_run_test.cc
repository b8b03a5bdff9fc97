// Tests that --dry-run prints what would be done, and does nothing.

#include <filesystem>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {
namespace fs = std::filesystem;

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(IndexDryRunTest, SaysWhatWouldBeReadAndWhatIsGone) {
  const SmallIndex index;
  const std::string a = index.dir() / "a.tar", b = index.dir() / "b.tar", c = index.dir() / "c.tar";
  write_file(b, small_shard(3, 9));
  write_file(c, small_shard(20, 2));
  const std::string before = read_file(index.path());
  const auto names = index.dir().list();
  const Finished text =
      shardwise({"index", "--dry-run", "--drop-missing", "-o", index.path(), b, c, b + "x"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(lines_of(text.out),
              ElementsAre("read\t" + b, "read\t" + c, "missing\t" + b + "x", "gone\t" + a));
  EXPECT_THAT(text.err,
              AllOf(HasSubstr("note: would read 2 shards ("), HasSubstr("nothing was written")));
  const auto json = nlohmann::json::parse(
      shardwise_output({"index", "--dry-run", "--json", "-o", index.path(), a, b}));
  EXPECT_EQ(json["dry_run"], true);
  EXPECT_THAT(json["unchanged"], ElementsAre(a));
  EXPECT_THAT(json["read"], ElementsAre(b));
  EXPECT_EQ(json["bytes_to_read"], fs::file_size(b));
  EXPECT_THAT(json["gone"], IsEmpty());
  EXPECT_EQ(read_file(index.path()), before);
  EXPECT_EQ(index.dir().list(), names);
  EXPECT_THAT(shardwise_output({"index", "-o", index.path(), a, b}),
              HasSubstr("(1 read, 1 unchanged)"));
}

TEST(IndexDryRunTest, WithoutAnIndexOrWithoutSourceItWorksToo) {
  const SmallIndex index;
  const std::string fresh = index.dir() / "new.idx";
  EXPECT_EQ(lines_of(shardwise_output({"index", "--dry-run", "-o", fresh, index.dir() / "a.tar"})),
            std::vector<std::string>{"read\t" + index.dir() / "a.tar"});
  EXPECT_FALSE(fs::exists(fresh));
  EXPECT_EQ(lines_of(shardwise_output({"index", "--dry-run", "-o", index.path()})).size(), 2U);
  fs::remove(index.dir() / "a.tar");
  expect_failure(shardwise({"index", "--dry-run", "-o", index.path()}), {"a.tar", "No such file"});
}

TEST(PackDryRunTest, CountsWhatWouldBeWritten) {
  const TempDir dir;
  for (int i = 0; i < 7; ++i) {
    write_file(dir / (std::to_string(i) + ".bin"), std::string(3000, 'x'));
  }
  const std::vector<std::string> pack = {"pack",      "--files", dir.path(),    "-o",
                                         dir / "out", "--json",  "--max-bytes", "12kB"};
  std::vector<std::string> dry = pack;
  dry.push_back("--dry-run");
  auto planned = nlohmann::json::parse(shardwise_output(dry));
  EXPECT_EQ(planned["dry_run"], true);
  EXPECT_FALSE(fs::exists(dir / "out"));
  auto done = nlohmann::json::parse(shardwise_output(pack));
  for (const char* name : {"shards", "samples", "members", "content_bytes", "shard_bytes"}) {
    EXPECT_EQ(planned[name], done[name]) << name;
  }
  const Finished refused = shardwise(dry);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--force")) << "as without --dry-run";
}

}  // namespace
}  // namespace shardwise::test
