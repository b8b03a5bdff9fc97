// `shardwise verify --full`: every byte of a shard, against the hashes of `index --hash`.

#include <fcntl.h>
#include <sys/stat.h>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

/// Flips a bit of a file, and gives it back its time.
void flip(const std::string& path, std::size_t offset) {
  struct stat before {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  std::string bytes = read_file(path);
  bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
  write_file(path, bytes);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(VerifyFullTest, FindsFlippedBytesOfDataAndNamesTheMember) {
  const SmallIndex index;
  const std::string shard = index.dir() / "b.tar";
  shardwise_output({"index", "--hash", "-o", index.path(), index.dir() / "a.tar", shard});
  EXPECT_EQ(lines_of(shardwise_output({"verify", "--full", index.path()})).size(), 2U);
  EXPECT_THAT(shardwise_output({"info", index.path()}), HasSubstr("hashes       of every shard"));
  for (const std::size_t offset : {512U, 518U, 1536U, 2560U}) {
    flip(shard, offset);
    EXPECT_EQ(shardwise({"verify", index.path()}).code, 0) << "headers are as they were";
    const Finished finished = shardwise({"verify", "--full", index.path()});
    EXPECT_EQ(finished.code, 1) << offset;
    EXPECT_THAT(finished.out, HasSubstr("DIFFERS  " + shard + ": the content of '"));
    EXPECT_THAT(finished.out, HasSubstr(" at offset " + std::to_string(offset / 512 * 512)));
    EXPECT_THAT(finished.err, HasSubstr("1 of 2 shards differ"));
    flip(shard, offset);
  }
  flip(shard, 600);  // padding
  const Finished finished = shardwise({"verify", "--full", "--json", index.path()});
  EXPECT_EQ(finished.code, 1);
  const auto shards = json_lines(finished.out);
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_EQ(shards[0]["ok"], true);
  EXPECT_EQ(shards[1]["problem"],
            "bytes outside of headers and members differ from those that were indexed");
}

TEST(VerifyFullTest, WithoutHashesItSaysHowToGetThem) {
  const SmallIndex index;
  const Finished finished = shardwise({"verify", "--full", index.path()});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.out, IsEmpty());
  EXPECT_EQ(finished.err, "shardwise: error: the index holds no hashes to verify content with: '" +
                              index.path() +
                              "'; build it with `shardwise index --hash`, or verify the headers "
                              "only\n");
}

TEST(VerifyFullTest, AShardThatIsGoneDoesNotHideTheOthers) {
  const SmallIndex index;
  std::filesystem::remove(index.dir() / "a.tar");
  const Finished finished = shardwise({"verify", index.path()});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.out, AllOf(HasSubstr("DIFFERS  " + index.dir() / "a.tar"),
                                  HasSubstr("the shard does not exist"),
                                  HasSubstr("ok       " + index.dir() / "b.tar")));
}

TEST(VerifyFullTest, AShardThatCannotBeReadIsNotSaidToDiffer) {
  const SmallIndex index;
  const std::string shard = index.dir() / "a.tar";
  std::filesystem::rename(shard, index.dir() / "kept");
  std::filesystem::create_symlink("a.tar", shard);  // to itself: for root, too, it cannot be opened
  const Finished finished = shardwise({"verify", index.path()});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.out, AllOf(HasSubstr("UNREAD   " + shard + ": not verified: "),
                                  HasSubstr("ok       "), testing::Not(HasSubstr("DIFFERS"))));
  EXPECT_THAT(finished.err, HasSubstr("1 of 2 shards could not be read, and may be as indexed"));
  const auto lines = json_lines(shardwise({"verify", "--json", index.path()}).out);
  EXPECT_TRUE(lines[0]["ok"].is_null());
  EXPECT_EQ(lines[1]["ok"], true);
  write_file(index.dir() / "b.tar", small_shard(3, 5));
  const Finished both = shardwise({"verify", index.path()});
  EXPECT_THAT(both.out, AllOf(HasSubstr("UNREAD   "), HasSubstr("DIFFERS  ")));
  EXPECT_THAT(both.err, HasSubstr("1 of 2 shards differs"));
}

}  // namespace
}  // namespace shardwise::test
