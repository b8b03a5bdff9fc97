// Tests that failures exit with 1 and a text that names the cause and the remedy, and wrong usage
// with 2.

#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Runs `shardwise` with a limit of 4 KB on file sizes.
Finished with_small_files(std::vector<std::string> arguments) {
  std::vector<std::string> all = {"/bin/sh", "-c", "ulimit -f 8 && exec \"$@\"", "sh",
                                  SHARDWISE_PROGRAM};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run(std::move(all));
}

// faults.md 5: a command must report the limit. SIGXFSZ must not kill it silently.
TEST(ErrorsTest, LimitOnTheSizeOfFiles) {
  const TempDir dir;
  write_file(dir / "a.tar", small_shard(0, 1000));
  expect_failure(with_small_files({"index", "-o", dir / "x.idx", dir / "a.tar"}),
                 {"x.idx", "File too large", "(ulimit -f)"});
  EXPECT_THAT(dir.list(), testing::ElementsAre("a.tar"));
  std::filesystem::create_directory(dir / "in");
  write_file(dir / "in/a.bin", std::string(100'000, 'x'));
  expect_failure(with_small_files({"pack", "--files", dir / "in", "-o", dir / "out"}),
                 {"out", "File too large", "(ulimit -f)"});
  shardwise_output({"index", "-o", dir / "x.idx", dir / "a.tar"});
  const Finished listed = with_small_files({"ls", dir / "x.idx"});
  EXPECT_EQ(listed.code, 1);
  EXPECT_THAT(listed.err, testing::AllOf(testing::HasSubstr("cannot write the results"),
                                         testing::HasSubstr("(ulimit -f)")));
}

// Fault under test: tests/faults.md 7.
TEST(ErrorsTest, ShardTruncatedDuringAnEpoch) {
  const TempDir dir;
  for (const int milliseconds : {5, 20, 40, 80}) {
    write_file(dir / "a.tar", small_shard(0, 20'000));
    shardwise_output({"index", "--quiet", "-o", dir / "x.idx", dir / "a.tar"});
    Process epoch({SHARDWISE_PROGRAM, "epoch", dir / "x.idx", "--quiet", "--access", "read"});
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    std::filesystem::resize_file(dir / "a.tar", 700);
    const Finished finished = epoch.wait();
    if (finished.code != 0) {
      expect_failure(finished, {dir / "a.tar", "changed", "(700 bytes now, ", ";"});
    }
  }
}

// Fault under test: tests/faults.md 7.
TEST(ErrorsTest, ShardTruncatedWhileAFieldIsWritten) {
  const TempDir dir;
  const std::string content(std::size_t{24} << 20, 'x');
  const std::string tar = TarBuilder().file("a.bin", content).end().bytes();
  const auto restore = [&] {
    write_file(dir / "a.tar", tar);
    const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (dir / "a.tar").c_str(), times, 0), 0);
  };
  restore();
  shardwise_output({"index", "--quiet", "-o", dir / "x.idx", dir / "a.tar"});
  int num_cut = 0;
  for (int milliseconds = 0; milliseconds < 96; milliseconds += 8) {
    restore();
    Process cat({SHARDWISE_PROGRAM, "cat", dir / "x.idx", "0", "bin"});
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    std::filesystem::resize_file(dir / "a.tar", 5000);
    const Finished finished = cat.wait();
    if (finished.code == 0) {
      EXPECT_TRUE(finished.out == content) << "other bytes";
    } else {
      ++num_cut;
      expect_failure(finished, {dir / "a.tar", "changed", ";"});
    }
  }
  std::printf("%d of 12 were cut\n", num_cut);
}

/// Replaces bytes of a file and restores its modification time, so that only the content differs.
void edit_unnoticed(const std::string& path, std::size_t offset, const std::string& bytes) {
  struct stat before {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  std::string content = read_file(path);
  content.replace(offset, bytes.size(), bytes);
  TarBuilder::fix_checksum(content.data() + offset / 512 * 512);
  write_file(path, content);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(ErrorsTest, VerifyFindsHeadersThatWereEditedInPlace) {
  const SmallIndex renamed;
  edit_unnoticed(renamed.dir() / "b.tar", 1024, "X");  // in the name of the member 3.cls
  Finished verified = shardwise({"verify", renamed.path(), "--json"});
  EXPECT_EQ(verified.code, 1);
  auto shards = json_lines(verified.out);
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[0]["ok"], true);
  EXPECT_EQ(shards[1]["ok"], false);
  EXPECT_THAT(shards[1]["problem"], AllOf(HasSubstr("'X.cls' at offset 1536"), HasSubstr("'3'")));

  const SmallIndex other_mode;
  edit_unnoticed(other_mode.dir() / "a.tar", 100, "0000600");
  verified = shardwise({"verify", other_mode.path()});
  EXPECT_EQ(verified.code, 1);
  EXPECT_THAT(verified.out, HasSubstr("a.tar: headers differ"));
}

}  // namespace
}  // namespace shardwise::test
