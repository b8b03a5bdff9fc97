// Tests what index, info, ls, cat and verify print if there is no error.

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "base/text.h"
#include "shardwise_program.h"
#include "support/environment.h"

namespace shardwise::test {
namespace {
namespace fs = std::filesystem;

using testing::HasSubstr;
using testing::IsEmpty;

TEST(ProgramTest, HelpAndVersionGoToStandardOutput) {
  EXPECT_THAT(shardwise_output({"--version"}),
              testing::StartsWith("shardwise " SHARDWISE_VERSION "\n"));
  EXPECT_THAT(shardwise_output({"--help"}), HasSubstr("index"));
}

TEST(ProgramTest, EachCommandHasHelpWithAnExample) {
  for (const char* command :
       {"index", "merge", "attach", "info", "ls", "cat", "verify", "query", "order", "explain",
        "when", "epoch", "export", "pack", "repack", "plan", "cache"}) {
    const std::string help = shardwise_output({command, "--help"});
    EXPECT_THAT(help, HasSubstr("Example")) << command;
    EXPECT_THAT(help, HasSubstr(std::string("  shardwise ") + command)) << command;
  }
}

TEST(RepackCommandTest, NumbersAreReadAsTheyArePrinted) {
  const SmallIndex made;
  const TempDir dir;
  const Finished finished = shardwise({"repack", made.path(), "-o", dir / "new", "--max-samples",
                                       "20,000", "--shuffle", "1,000", "--dry-run"});
  EXPECT_EQ(finished.code, 0) << finished.err;
}

TEST(LsCommandTest, NamesThatAreNoTextComeInHexadecimal) {
  const TempDir dir;
  write_file(dir / "a.tar",
             TarBuilder().file("caf\xe9.jpg", "x").file("a\"\\\n\x01.jpg", "y").end().bytes());
  shardwise_output({"index", "-o", dir / "x.idx", dir / "a.tar"});
  const auto members = json_lines(shardwise_output({"ls", dir / "x.idx", "--json"}));
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0]["key_hex"], "636166e9");
  EXPECT_FALSE(members[0].contains("key"));
  EXPECT_EQ(members[1]["key"], "a\"\\\n\x01");
  const std::string text = shardwise_output({"ls", dir / "x.idx"});
  EXPECT_THAT(text, HasSubstr("caf\\xe9\tjpg"));
  EXPECT_EQ(lines_of(text).size(), 2u);
  EXPECT_EQ(shardwise_output({"cat", dir / "x.idx", "--key", "caf\xe9", "jpg"}), "x");
}

TEST(IndexJsonTest, PathsThatAreNotUtf8AreHexadecimal) {
  const TempDir dir;
  write_file(dir / "a.tar", small_shard(0, 3));
  write_file(dir / "b\xff.tar", small_shard(10, 3));
  shardwise_output({"index", "-o", dir / "x.idx", dir / "a.tar", dir / "b\xff.tar"});
  const auto plan = nlohmann::json::parse(
      shardwise_output({"index", "--dry-run", "--json", "-o", dir / "x.idx", dir / "a.tar"}));
  EXPECT_EQ(plan["gone"].size(), 0u);
  EXPECT_EQ(plan["gone_hex"], nlohmann::json::array({shardwise::hex(dir / "b\xff.tar")}));
  EXPECT_EQ(plan["unchanged"], nlohmann::json::array({dir / "a.tar"}));
  const auto report = nlohmann::json::parse(
      shardwise_output({"index", "--json", "-o", dir / "x.idx", dir / "a.tar"}));
  EXPECT_EQ(report["gone_hex"], plan["gone_hex"]);
}

TEST(OutputTest, AReaderThatHasEnoughEndsTheProgramQuietly) {
  const TempDir dir;
  write_file(dir / "a.tar", small_shard(0, 10'000));
  shardwise_output({"index", "-o", dir / "x.idx", dir / "a.tar"});
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Process list({SHARDWISE_PROGRAM, "ls", dir / "x.idx"}, "", ends[1]);
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  ::close(ends[0]);
  const Finished finished = list.wait();
  EXPECT_EQ(finished.code, 0);
  EXPECT_THAT(finished.err, IsEmpty());
}

TEST(OutputTest, AFullDiskIsAnError) {
  const SmallIndex index;
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "needs /dev/full; skipped because it does not exist";
  const Finished finished = Process({SHARDWISE_PROGRAM, "ls", index.path()}, "", full).wait();
  ::close(full);
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err,
              HasSubstr("shardwise: error: cannot write the results: 'standard output' "
                        "(No space left on device); free some space"));
}

/// A shell does not expand "~" after the = of an option, in a list, or in quotes.
TEST(HomeTest, ATildeIsTheHomeFolderWhereverAFileIsNamed) {
  Environment environment;
  const TempDir home, work;
  environment.set("HOME", home.path());
  environment.set("XDG_CACHE_HOME", home / "xdg");
  fs::create_directories(home / "data");
  write_file(home / "data/a.tar", small_shard(0, 3));
  write_file(home / "data/b.tar.gz", compress(small_shard(3, 4), Compression::kGzip));
  write_file(home / "list.txt", "~/data/a.tar\n");
  write_file(home / "query.sql", "SELECT count(*) FROM samples");
  write_file(home / "skip.txt", "0\n");
  const auto sums = [&](std::vector<std::string> arguments) {
    return shardwise_output(std::move(arguments));
  };
  // Run in a folder in which no file may be created.
  fs::create_directory(work / "empty");
  const fs::path before = fs::current_path();
  fs::current_path(work / "empty");
  sums({"index", "--output=~/all.idx", "~/data", "--quiet"});
  sums({"index", "-o", "~/brace.idx", "{~/data/a.tar,~/data/b.tar.gz}", "--quiet"});
  sums({"index", "-o", "~/listed.idx", "@~/list.txt", "--quiet"});
  EXPECT_EQ(json_lines(sums({"info", "--json", "~/brace.idx"}))[0]["samples"], 7);
  EXPECT_EQ(json_lines(sums({"info", "--json", "~/listed.idx"}))[0]["samples"], 3);
  EXPECT_EQ(sums({"query", "~/all.idx", "@~/query.sql"}), "7\n");
  EXPECT_EQ(sums({"cat", "~/data/a.tar", "0", "jpg"}), "image 0") << "an index at first use";
  sums({"epoch", "~/all.idx", "--cache=~/cache", "--metrics=~/metrics.prom", "--skip=~/skip.txt",
        "--quiet"});
  sums({"cache", "ls", "~/cache"});
  sums({"order", "--mix", "~/all.idx=1,~/listed.idx=2", "--epoch-size", "4"});
  sums({"export", "~/listed.idx", "--format", "wids", "-o", "~/wids.json"});
  sums({"index", "-o", "~/described.idx", "~/wids.json", "--quiet"});
  sums({"index", "-o", "~/part.idx", "--part", "1/1", "~/data", "--quiet"});
  sums({"merge", "-o", "~/merged.idx", "~/part.idx"});
  fs::create_directory(home / "files");
  write_file(home / "files/x.txt", "text");
  sums({"pack", "-o", "~/packed", "--files=~/files", "--max-samples", "10", "--quiet"});
  sums({"index", "-o", "~/all.idx", "--quiet"});
  EXPECT_TRUE(fs::is_empty(".")) << "a folder ~ was made";
  for (const char* made : {"all.idx", "cache/locks", "metrics.prom", "wids.json", "described.idx",
                           "merged.idx", "packed"}) {
    EXPECT_TRUE(fs::exists(home / made)) << made;
  }
  // A file whose own name begins with ~ is not in the home folder.
  write_file("~name.tar", small_shard(0, 2));
  fs::create_directory("~");
  write_file("~/b.tar", small_shard(0, 1));
  EXPECT_EQ(json_lines(sums({"info", "--json", "~name.tar"}))[0]["samples"], 2);
  EXPECT_EQ(json_lines(sums({"info", "--json", "./~/b.tar"}))[0]["samples"], 1);
  fs::current_path(before);
}

}  // namespace
}  // namespace shardwise::test
