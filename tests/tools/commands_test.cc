// What index, info, ls, cat and verify print when all is well.

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "shardwise_program.h"
#include "support/environment.h"

namespace shardwise::test {
namespace {
namespace fs = std::filesystem;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ProgramTest, HelpAndVersionGoToStandardOutput) {
  EXPECT_THAT(shardwise_output({"--version"}),
              testing::StartsWith("shardwise " SHARDWISE_VERSION "\n"));
  EXPECT_THAT(shardwise_output({"--help"}), HasSubstr("index"));
}

TEST(ProgramTest, EachCommandHasHelpWithAnExample) {
  for (const char* command : {"index", "merge", "info", "ls", "cat", "verify", "query", "order",
                              "explain", "when", "epoch", "export", "pack", "plan", "cache"}) {
    const std::string help = shardwise_output({command, "--help"});
    EXPECT_THAT(help, HasSubstr("Example")) << command;
    EXPECT_THAT(help, HasSubstr(std::string("  shardwise ") + command)) << command;
  }
}

TEST(IndexCommandTest, ReportsWhatItDidAndReusesUnchangedShards) {
  const TempDir dir;
  write_file(dir / "a.tar", small_shard(0, 3));
  write_file(dir / "b.tar", small_shard(3, 4));
  const auto first = nlohmann::json::parse(
      shardwise_output({"index", "-o", dir / "x.idx", "--json", dir.path() + "/{a,b}.tar"}));
  EXPECT_EQ(first["shards"], 2);
  EXPECT_EQ(first["shards_scanned"], 2);
  EXPECT_EQ(first["shards_reused"], 0);
  EXPECT_EQ(first["samples"], 7);
  EXPECT_EQ(first["members"], 14);

  write_file(dir / "c.tar", small_shard(7, 1));
  const auto second = nlohmann::json::parse(
      shardwise_output({"index", "-o", dir / "x.idx", "--json", "--threads", "2", dir.path()}));
  EXPECT_EQ(second["shards_scanned"], 1);
  EXPECT_EQ(second["shards_reused"], 2);
  EXPECT_EQ(second["samples"], 8);
  EXPECT_NE(second["fingerprint"], first["fingerprint"]);
}

TEST(IndexCommandTest, TakesAListOnStandardInputAndFromAFile) {
  const TempDir dir;
  write_file(dir / "a.tar", small_shard(0, 3));
  write_file(dir / "list.txt", "# shards\n" + dir / "a.tar" + "\n");
  const Finished piped = shardwise({"index", "-o", dir / "x.idx", "-"}, dir / "a.tar" + "\n");
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_THAT(piped.out, HasSubstr("3 samples in 1 shard (1 read, 0 unchanged)"));
  EXPECT_THAT(shardwise_output({"index", "-o", dir / "x.idx", "@" + dir / "list.txt"}),
              HasSubstr("(0 read, 1 unchanged)"));
}

TEST(IndexCommandTest, NotesGoToStandardErrorAndIntoTheJson) {
  const TempDir dir;
  TarBuilder tar;
  tar.entry("folder/", '5', "").file("1.jpg", "x");  // no end marker
  write_file(dir / "a.tar", tar.bytes());
  const Finished finished = shardwise({"index", "-o", dir / "x.idx", dir / "a.tar"});
  EXPECT_EQ(finished.code, 0);
  EXPECT_THAT(
      finished.err,
      HasSubstr("shardwise: note: 1 shard has no end-of-archive marker; an archive that was "
                "cut between two members looks the same: "));
  EXPECT_THAT(finished.err, HasSubstr("a.tar"));
  EXPECT_THAT(finished.err, HasSubstr("1 member belongs to no sample"));
  const auto json = nlohmann::json::parse(
      shardwise_output({"index", "-o", dir / "y.idx", "--json", dir / "a.tar"}));
  EXPECT_THAT(json["without_end_marker"], ElementsAre(dir / "a.tar"));
  EXPECT_EQ(json["not_samples"], 1);
}

TEST(IndexCommandTest, SkipsBadMembersOnlyWhenAskedAndSaysWhich) {
  const TempDir dir;
  write_file(dir / "a.tar",
             TarBuilder().file("1.jpg", "x").file("1.jpg", "y").file("2.jpg", "z").end().bytes());
  EXPECT_EQ(shardwise({"index", "-o", dir / "x.idx", dir / "a.tar"}).code, 1);
  const Finished lenient =
      shardwise({"index", "-o", dir / "x.idx", "--on-bad", "skip", dir / "a.tar"});
  EXPECT_EQ(lenient.code, 0) << lenient.err;
  EXPECT_THAT(lenient.err, HasSubstr("1 member was left out"));

  const auto info = nlohmann::json::parse(shardwise_output({"info", "--json", dir / "x.idx"}));
  EXPECT_EQ(info["on_bad"], "skip");
  EXPECT_EQ(info["num_skipped"], 1);
  ASSERT_EQ(info["skipped"].size(), 1u);
  EXPECT_EQ(info["skipped"][0]["name"], "1.jpg");
  EXPECT_EQ(info["skipped"][0]["offset"], 1024);
  EXPECT_THAT(shardwise_output({"info", dir / "x.idx"}), HasSubstr("left out: 1 member"));
  EXPECT_THAT(shardwise_output({"verify", dir / "x.idx"}), HasSubstr("ok"));
}

TEST(InfoCommandTest, SumsUpTheIndex) {
  const SmallIndex index;
  const auto info = nlohmann::json::parse(shardwise_output({"info", index.path(), "--json"}));
  EXPECT_EQ(info["shards"], 2);
  EXPECT_EQ(info["samples"], 7);
  EXPECT_EQ(info["members"], 14);
  EXPECT_EQ(info["content_bytes"], 7 * 8);
  EXPECT_EQ(info["fields"], nlohmann::json::parse(R"([
      {"name": "cls", "members": 7, "bytes": 7}, {"name": "jpg", "members": 7, "bytes": 49}])"));
  EXPECT_EQ(info["built_with"], "shardwise " SHARDWISE_VERSION);
  const std::string text = shardwise_output({"info", index.path()});
  EXPECT_THAT(text, HasSubstr("samples      7\n"));
  EXPECT_THAT(text, HasSubstr(info["fingerprint"].get<std::string>()));
}

TEST(LsCommandTest, ListsEveryMember) {
  const SmallIndex index;
  const auto members = json_lines(shardwise_output({"ls", index.path(), "--json"}));
  ASSERT_EQ(members.size(), 14u);
  EXPECT_EQ(members[8], nlohmann::json({{"shard", 1},
                                        {"url", index.dir() / "b.tar"},
                                        {"sample", 4},
                                        {"key", "4"},
                                        {"field", "jpg"},
                                        {"offset", 2 * 1024 + 512},
                                        {"size", 7}}));
  EXPECT_THAT(lines_of(shardwise_output({"ls", index.path(), "--shard", "1", "--limit", "1"})),
              ElementsAre(index.dir() / "b.tar" + "\t3\t3\tjpg\t512\t7"));
  EXPECT_THAT(shardwise_output({"ls", index.path(), "--limit", "0"}), IsEmpty());
  EXPECT_EQ(lines_of(shardwise_output({"ls", index.path(), "--limit", "9"})).size(), 9u);
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

TEST(CatCommandTest, WritesAFieldByNumberAndByKey) {
  const SmallIndex index;
  EXPECT_EQ(shardwise_output({"cat", index.path(), "5", "jpg"}), "image 5");
  EXPECT_EQ(shardwise_output({"cat", index.path(), "--key", "5", "cls"}), "5");
  EXPECT_EQ(shardwise_output({"cat", index.path(), "5"}), "jpg\t7\ncls\t1\n");
  EXPECT_EQ(shardwise_output({"cat", index.path(), "--key", "5"}), "jpg\t7\ncls\t1\n");
  EXPECT_EQ(shardwise_output({"cat", index.path(), "--", "5", "cls"}), "5");
  for (const std::vector<std::string>& negative :
       {std::vector<std::string>{"cat", index.path(), "--", "-1"}, {"cat", index.path(), "-1"}}) {
    const Finished finished = shardwise(negative);
    EXPECT_EQ(finished.code, 2);
    EXPECT_THAT(finished.err, HasSubstr("SAMPLE: must be a sample number, from 0"));
  }
}

TEST(VerifyCommandTest, SaysOkForEachShard) {
  const SmallIndex index;
  EXPECT_THAT(
      lines_of(shardwise_output({"verify", index.path()})),
      ElementsAre("ok       " + index.dir() / "a.tar", "ok       " + index.dir() / "b.tar"));
  const auto shards = json_lines(shardwise_output({"verify", "--json", index.path()}));
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[1],
            nlohmann::json({{"shard", 1}, {"url", index.dir() / "b.tar"}, {"ok", true}}));
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
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  const Finished finished = Process({SHARDWISE_PROGRAM, "ls", index.path()}, "", full).wait();
  ::close(full);
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err,
              HasSubstr("shardwise: error: cannot write the results: 'standard output' "
                        "(No space left on device); free some space"));
}

/// A shell leaves "~" as it is behind the = of an option, in a list, and in quotes.
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
  // In a folder in which nothing may appear.
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
  // A file's own name is not changed.
  write_file("~name.tar", small_shard(0, 2));
  fs::create_directory("~");
  write_file("~/b.tar", small_shard(0, 1));
  EXPECT_EQ(json_lines(sums({"info", "--json", "~name.tar"}))[0]["samples"], 2);
  EXPECT_EQ(json_lines(sums({"info", "--json", "./~/b.tar"}))[0]["samples"], 1);
  fs::current_path(before);
}

}  // namespace
}  // namespace shardwise::test
