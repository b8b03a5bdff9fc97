// Each failure exits with 1 and a text that names the thing and the way out; wrong usage with 2.

#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(ErrorsTest, WrongPath) {
  const TempDir dir;
  expect_failure(shardwise({"index", "-o", dir / "x.idx", dir / "none.tar"}),
                 {dir / "none.tar", "No such file", "check the path"});
  expect_failure(shardwise({"index", "-o", dir / "x.idx", dir / "none-*.tar"}),
                 {dir / "none-*.tar"});
  expect_failure(shardwise({"info", dir / "none.idx"}), {dir / "none.idx", "check the path"});
  expect_failure(shardwise({"ls", dir / "none.idx"}), {dir / "none.idx"});
  EXPECT_THAT(dir.list(), IsEmpty());
}

TEST(ErrorsTest, EmptyFile) {
  const TempDir dir;
  write_file(dir / "empty.tar", "");
  expect_failure(shardwise({"index", "-o", dir / "x.idx", dir / "empty.tar"}),
                 {dir / "empty.tar", ";"});
}

TEST(ErrorsTest, TextFileNamedTar) {
  const TempDir dir;
  write_file(dir / "text.tar", std::string(2000, 'x'));
  expect_failure(shardwise({"index", "-o", dir / "x.idx", dir / "text.tar"}),
                 {dir / "text.tar", "offset 0", ";"});
}

TEST(ErrorsTest, TruncatedShard) {
  const TempDir dir;
  TarBuilder tar;
  tar.file("1.jpg", "x").file("2.jpg", std::string(5000, 'y'));
  write_file(dir / "cut.tar", tar.bytes().substr(0, 3000));
  expect_failure(shardwise({"index", "-o", dir / "x.idx", dir / "cut.tar"}),
                 {dir / "cut.tar", "offset 1024", "2.jpg", ";"});
}

TEST(ErrorsTest, IndexOfAnotherVersion) {
  const SmallIndex index;
  std::string bytes = read_file(index.path());
  bytes[63] = static_cast<char>(bytes[63] + 100);  // SQLite's user_version, big-endian at 60
  write_file(index.path(), bytes);
  expect_failure(shardwise({"info", index.path()}), {index.path(), "version", "index", ";"});
}

TEST(ErrorsTest, NoIndexAtAll) {
  const TempDir dir;
  write_file(dir / "notes.txt", "a text");
  expect_failure(shardwise({"info", dir / "notes.txt"}),
                 {dir / "notes.txt", "not a Shardwise index", ";"});
}

TEST(ErrorsTest, UnwritableOutput) {
  const TempDir dir;
  write_file(dir / "a.tar", small_shard(0, 3));
  for (const std::size_t length : {240U, 250U, 300U}) {
    expect_failure(
        shardwise({"index", "-o", dir / std::string(length, 'x'), dir / "a.tar"}),
        {"File name too long", "choose a shorter name: of an index, one of at most 200 bytes"});
  }
  expect_failure(shardwise({"index", "-o", dir / "none/x.idx", dir / "a.tar"}),
                 {dir / "none/x.idx", "make the folder first"});
  // Root may write where modes forbid it, so a place where nobody can.
  expect_failure(shardwise({"index", "-o", "/proc/x.idx", dir / "a.tar"}), {"/proc/x.idx"});
}

/// Runs `shardwise` where no file may be larger than 4 KB.
Finished with_small_files(std::vector<std::string> arguments) {
  std::vector<std::string> all = {"/bin/sh", "-c", "ulimit -f 8 && exec \"$@\"", "sh",
                                  SHARDWISE_PROGRAM};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run(std::move(all));
}

// faults.md 5: the signal that a large file raises does not end a command without a word.
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

TEST(ErrorsTest, FieldThatDoesNotExist) {
  const SmallIndex index;
  expect_failure(shardwise({"cat", index.path(), "2", "png"}),
                 {"'png'", "sample 2", "jpg", "a.tar"});
}

TEST(ErrorsTest, SampleOutOfRange) {
  const SmallIndex index;
  expect_failure(shardwise({"cat", index.path(), "7"}), {"sample 7", index.path(), "7 samples"});
  expect_failure(shardwise({"cat", index.path(), "9223372036854775807"}), {"9223372036854775807"});
  expect_failure(shardwise({"cat", index.path(), "--key", "none"}), {"'none'", index.path()});
  expect_failure(shardwise({"ls", index.path(), "--shard", "2"}), {"shard 2", "2 shards"});
}

TEST(ErrorsTest, ShardChangedAfterIndexing) {
  const SmallIndex index;
  write_file(index.dir() / "b.tar", small_shard(3, 5));
  expect_failure(shardwise({"cat", index.path(), "4", "jpg"}),
                 {index.dir() / "b.tar", "changed", ";"});
  EXPECT_EQ(shardwise_output({"cat", index.path(), "0", "jpg"}), "image 0");

  const Finished verified = shardwise({"verify", index.path()});
  EXPECT_EQ(verified.code, 1);
  EXPECT_THAT(verified.out, AllOf(HasSubstr("ok       " + index.dir() / "a.tar"),
                                  HasSubstr("DIFFERS  " + index.dir() / "b.tar")));
  EXPECT_THAT(verified.err,
              AllOf(HasSubstr("1 of 2 shards"), HasSubstr("`shardwise index` again")));
}

// faults.md 7
TEST(ErrorsTest, ShardTruncatedAfterIndexing) {
  const SmallIndex index;
  std::filesystem::resize_file(index.dir() / "b.tar", 700);
  const std::vector<std::string> parts = {index.dir() / "b.tar", "changed", "700 bytes now", ";"};
  expect_failure(shardwise({"cat", index.path(), "4", "jpg"}), parts);
  for (const char* access : {"map", "read"}) {
    expect_failure(shardwise({"epoch", index.path(), "--quiet", "--access", access}), parts);
  }
}

// faults.md 7
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

// faults.md 7
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

TEST(ErrorsTest, ShardGoneAfterIndexing) {
  const SmallIndex index;
  std::filesystem::remove(index.dir() / "a.tar");
  expect_failure(shardwise({"cat", index.path(), "0", "jpg"}), {index.dir() / "a.tar", ";"});
  EXPECT_EQ(shardwise({"verify", index.path()}).code, 1);
}

/// Replaces bytes of a file and gives it back its time, so that only its content tells.
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
  edit_unnoticed(renamed.dir() / "b.tar", 1024, "X");  // the name of 3.cls
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

TEST(ErrorsTest, WrongUsage) {
  const SmallIndex index;
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"frobnicate"},
      {"index"},
      {"index", "-o", "x.idx"},
      {"index", "a.tar"},
      {"index", "-o", "x.idx", "--on-bad", "perhaps", "a.tar"},
      {"index", "-o", "x.idx", "--threads", "many", "a.tar"},
      {"info"},
      {"info", index.path(), "more"},
      {"ls", index.path(), "--limit", "-1"},
      {"ls", index.path(), "--no-such-option"},
      {"cat", index.path()},
      {"cat", index.path(), "one"},
      {"cat", index.path(), "1", "jpg", "more"},
      {"cat", index.path(), "1", "jpg", "--key", "5"},
      {"order"},
      {"order", index.path(), "--size", "10"},
      {"order", "--size", "-1"},
      {"order", "--size", "10", "--world", "3", "--rank", "3"},
      {"order", "--size", "10", "--world", "0"},
      {"order", "--size", "10", "--world", "3", "--streams", "2"},
      {"order", "--size", "10", "--sampler", "sharded"},
      {"order", "--size", "10", "--sampler", "sequential", "--chunk", "5"},
      {"order", "--size", "10", "--sampler", "random"},
      {"order", "--size", "10", "--tail", "short"},
      {"explain", "--size", "10", "--batch", "2"},
      {"explain", "--size", "10", "--step", "0", "--batch", "0"},
      {"when", "--size", "10", "--batch", "2"},
      {"when", "--size", "10", "--batch", "2", "--key", "k"},
      {"when", index.path(), "--batch", "2", "--key", "k", "--sample", "1"},
      {"epoch", index.path(), "--rank", "1"},
      {"epoch", index.path(), "--batch", "0"},
      {"epoch", index.path(), "--decode", "sometimes"},
      {"epoch", index.path(), "--access", "write"},
      {"pack", "-o", "somewhere"},
      {"pack", "-o", "somewhere", "--images", "a", "--files", "b"},
      {"pack", "-o", "somewhere", "--images", "a", "--max-samples", "0"},
      {"pack", "-o", "somewhere", "--images", "a", "--seed", "1"},
  };
  for (const auto& arguments : wrong) {
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, 2) << testing::PrintToString(arguments);
    EXPECT_THAT(finished.out, IsEmpty());
    EXPECT_THAT(finished.err, AllOf(StartsWith("shardwise: error: "), HasSubstr("--help")));
  }
}

}  // namespace
}  // namespace shardwise::test
