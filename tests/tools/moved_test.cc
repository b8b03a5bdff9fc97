// Shards that moved, on the command line: --root, --accept-times, --relocate, and what is missing.
#include <filesystem>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A small index whose shards were moved from beside it to `data()`.
class MovedShardsTest : public testing::Test {
 protected:
  MovedShardsTest() {
    fs::create_directory(data());
    for (const char* name : {"a.tar", "b.tar"}) {
      fs::rename(index_.dir() / name, data() + "/" + name);
    }
  }
  std::string data() const { return other_ / "data"; }
  void give_new_times() const {
    for (const char* name : {"/a.tar", "/b.tar"}) {
      fs::last_write_time(data() + name, fs::file_time_type::clock::now() - std::chrono::hours(9));
    }
  }

  const SmallIndex index_;
  const TempDir other_;
};

TEST_F(MovedShardsTest, EveryCommandThatOpensShardsTakesARoot) {
  const std::string index = index_.path();
  EXPECT_EQ(shardwise_output({"cat", index, "3", "jpg", "--root", data()}), "image 3");
  EXPECT_THAT(shardwise_output({"verify", index, "--root", data()}),
              HasSubstr("ok       " + data() + "/a.tar"));
  EXPECT_THAT(shardwise_output({"epoch", index, "--quiet", "--root", data()}),
              HasSubstr("7 samples, each exactly once"));
  shardwise_output(
      {"export", index, "--format", "wids", "-o", other_ / "x.json", "--root", data()});
  EXPECT_THAT(read_file(other_ / "x.json"), HasSubstr("\"data/a.tar\""));
  for (const char* command : {"cat", "verify", "epoch", "export"}) {
    EXPECT_THAT(shardwise_output({command, "--help"}),
                AllOf(HasSubstr("Shards that moved"), HasSubstr("--root DIR"),
                      HasSubstr("--accept-times")));
  }
}

TEST_F(MovedShardsTest, WithoutOneTheErrorSaysWhatToDo) {
  expect_failure(
      shardwise({"cat", index_.path(), "0", "jpg"}),
      {"shard not found: '" + index_.dir() / "a.tar" +
           "' (No such file or directory; 2 of 2 shards are missing)",
       "the index stores paths relative to its own folder, '" + index_.dir().path() + "'",
       "--root DIR", "--relocate OLD NEW"});
  const Finished verify = shardwise({"verify", index_.path()});
  EXPECT_EQ(verify.code, 1);
  EXPECT_THAT(verify.err, AllOf(HasSubstr("2 of 2 shards are missing: '" + index_.path() + "'"),
                                HasSubstr("--root DIR"), HasSubstr("--relocate OLD NEW"),
                                Not(HasSubstr("Dataset::Options"))));
  for (const std::string& out : {verify.out, shardwise({"verify", index_.path(), "--json"}).out}) {
    EXPECT_THAT(out, AllOf(HasSubstr("the shard does not exist"), Not(HasSubstr("--root"))))
        << "the error says it once for all shards";
  }
  expect_failure(shardwise({"export", index_.path(), "--format", "wids", "-o", other_ / "x.json"}),
                 {"2 of 2 shards are missing"});
  fs::rename(data() + "/a.tar", index_.dir() / "a.tar");
  EXPECT_THAT(shardwise({"verify", index_.path()}).err, HasSubstr("1 of 2 shards is missing"));
  write_file(index_.dir() / "a.tar", "x");
  EXPECT_THAT(shardwise({"verify", index_.path()}).err,
              HasSubstr("2 of 2 shards differ from what was indexed, 1 of them missing"));
}

TEST_F(MovedShardsTest, CopiesNeedTheirTimesAccepted) {
  give_new_times();
  expect_failure(shardwise({"cat", index_.path(), "0", "jpg", "--root", data()}),
                 {"the shard changed since it was indexed", "--accept-times"});
  for (const char* access : {"map", "read"}) {
    EXPECT_EQ(shardwise_output({"cat", index_.path(), "0", "jpg", "--root", data(),
                                "--accept-times", "--access", access}),
              "image 0");
  }
  EXPECT_EQ(shardwise({"verify", index_.path(), "--root", data()}).code, 1);
  EXPECT_EQ(shardwise({"verify", index_.path(), "--root", data(), "--accept-times"}).code, 0);
}

TEST_F(MovedShardsTest, AnIndexIsRelocated) {
  const Finished moved =
      shardwise({"index", "-o", index_.path(), "--relocate", index_.dir().path(), data()});
  EXPECT_EQ(moved.code, 0) << moved.err;
  EXPECT_THAT(moved.out, HasSubstr("7 samples in 2 shards (0 read, 2 unchanged)"));
  EXPECT_THAT(moved.err,
              HasSubstr("2 shards have another path or time than before, and were not read again"));
  EXPECT_EQ(shardwise_output({"cat", index_.path(), "6", "jpg"}), "image 6");
  EXPECT_THAT(shardwise_output({"index", "-o", index_.path()}), HasSubstr("(0 read, 2 unchanged)"));
  give_new_times();
  const std::vector<std::string> back = {"index",      "-o",   index_.path(),
                                         "--relocate", data(), data()};
  expect_failure(shardwise(back), {"2 of 2 shards are not what was indexed", "--accept-times"});
  auto accept = back;
  accept.insert(accept.end(), {"--accept-times", "--json"});
  const auto json = nlohmann::json::parse(shardwise_output(accept));
  EXPECT_EQ(json["shards_moved"], 2);
  EXPECT_EQ(json["shards_scanned"], 0);
  EXPECT_EQ(shardwise_output({"cat", index_.path(), "6", "jpg"}), "image 6");
}

TEST_F(MovedShardsTest, ARelocationStandsAlone) {
  const auto code = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"index", "-o", index_.path(), "--relocate", "/a", "/b"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return shardwise(arguments).code;
  };
  EXPECT_EQ(code({data()}), 2);
  EXPECT_EQ(code({"--dry-run"}), 2);
  EXPECT_EQ(code({"--hash"}), 2);
  const Finished one = shardwise({"index", "-o", index_.path(), "--relocate", "/a"});
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, HasSubstr("--relocate needs a value"));
  expect_failure(shardwise({"index", "-o", other_ / "none.idx", "--relocate", "/a", "/b"}),
                 {other_ / "none.idx"});
}

TEST_F(MovedShardsTest, ShardsNamedWhereTheyAreAreNotReadAgain) {
  const Finished moved = shardwise({"index", "-o", index_.path(), data()});
  EXPECT_THAT(moved.out, HasSubstr("(0 read, 2 unchanged)"));
  EXPECT_THAT(moved.err, Not(HasSubstr("gone")));
  give_new_times();
  EXPECT_THAT(shardwise_output({"index", "-o", index_.path(), "--accept-times"}),
              HasSubstr("(0 read, 2 unchanged)"));
}

TEST(MissingShardsOfAPatternTest, AreCounted) {
  const TempDir dir;
  for (int i = 0; i < 12; ++i) {
    write_file(dir / ("t-0" + std::to_string(10 + i) + ".tar"), small_shard(i, 1));
  }
  const std::string pattern = dir / "t-{010..109}.tar";
  expect_failure(shardwise({"index", "-o", dir / "x.idx", pattern}),
                 {"88 of 100 shards do not exist: the first is '" + dir / "t-022.tar" +
                      "' (No such file or directory); check the path",
                  "; `shardwise index --drop-missing` leaves out what is gone"});
}

}  // namespace
}  // namespace shardwise::test
