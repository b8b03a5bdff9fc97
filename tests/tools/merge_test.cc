// `shardwise index --part` and `shardwise merge`.

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// Seven shards of three samples below all/, and the commands to index them.
class MergeCommandTest : public testing::Test {
 protected:
  MergeCommandTest() {
    std::filesystem::create_directory(dir_ / "all");
    for (int i = 0; i < 7; ++i) {
      write_file(dir_ / ("all/" + std::to_string(i) + ".tar"), small_shard(3 * i, 3));
    }
  }

  std::string part(const std::string& number, std::vector<std::string> options = {}) const {
    std::string name = number + ".idx";
    name[name.find('/')] = '-';
    options.insert(options.begin(), {"index", "-o", dir_ / name, "--part", number, dir_ / "all"});
    shardwise_output(std::move(options));
    return dir_ / name;
  }

  std::string table_of(const std::string& index) const {
    for (const std::string& name : dir_.list()) {
      if (name.starts_with(index + ".") && name.ends_with(".table")) return read_file(dir_ / name);
    }
    return "no table of " + index;
  }

  void expect_failure(const std::vector<std::string>& parts, const std::string& reason) const {
    std::vector<std::string> arguments = {"merge", "-o", dir_ / "m.idx"};
    arguments.insert(arguments.end(), parts.begin(), parts.end());
    const Finished finished = shardwise(std::move(arguments));
    EXPECT_EQ(finished.code, 1);
    EXPECT_THAT(finished.out, IsEmpty());
    EXPECT_EQ(lines_of(finished.err).size(), 1U) << finished.err;
    EXPECT_THAT(finished.err, AllOf(StartsWith("shardwise: error: "), HasSubstr(reason)));
    EXPECT_FALSE(std::filesystem::exists(dir_ / "m.idx"));
  }

  const TempDir dir_;
};

TEST_F(MergeCommandTest, PartsGiveTheTableOfASingleBuildByteForByte) {
  shardwise_output({"index", "-o", dir_ / "one.idx", "--column", "cls", "--hash", dir_ / "all"});
  const std::vector<std::string> options = {"--column", "cls", "--hash"};
  const std::string p1 = part("1/3", options), p2 = part("2/3", options), p3 = part("3/3", options);
  EXPECT_THAT(shardwise_output({"merge", "-o", dir_ / "m.idx", p2, p3, p1}),
              StartsWith(dir_ / "m.idx" + ": 21 samples in 7 shards from 3 parts, "));
  EXPECT_EQ(table_of("m.idx"), table_of("one.idx"));
  const auto merged = nlohmann::json::parse(
      shardwise_output({"merge", "--json", "-o", dir_ / "m.idx", p1, p2, p3}));
  const auto one = nlohmann::json::parse(shardwise_output({"info", "--json", dir_ / "one.idx"}));
  EXPECT_EQ(merged["fingerprint"], one["fingerprint"]);
  EXPECT_EQ(merged["parts"], 3);
  EXPECT_EQ(merged["members"], 42);
  EXPECT_EQ(shardwise({"verify", "--full", dir_ / "m.idx"}).code, 0);
  EXPECT_EQ(shardwise_output({"ls", dir_ / "m.idx"}), shardwise_output({"ls", dir_ / "one.idx"}));
  EXPECT_THAT(shardwise_output({"info", p2}), HasSubstr("part         2/3 of 7 shards\n"));
  EXPECT_THAT(shardwise_output({"info", dir_ / "m.idx"}), Not(HasSubstr("part  ")));
  EXPECT_THAT(shardwise_output({"index", "-o", dir_ / "m.idx"}), HasSubstr("(0 read, 7 unchanged)"))
      << "it can be brought up to date as any other";
}

TEST_F(MergeCommandTest, MorePartsThanShards) {
  shardwise_output({"index", "-o", dir_ / "one.idx", dir_ / "all"});
  std::vector<std::string> arguments = {"merge", "-o", dir_ / "m.idx"};
  for (int i = 1; i <= 9; ++i) arguments.push_back(part(std::to_string(i) + "/9"));
  shardwise_output(arguments);
  EXPECT_EQ(table_of("m.idx"), table_of("one.idx"));
}

TEST_F(MergeCommandTest, WhatDoesNotBelongTogetherIsAnError) {
  const std::string p1 = part("1/3"), p2 = part("2/3"), p3 = part("3/3");
  expect_failure({p1, p3},
                 "part 2 of 3 is missing: '" + p3 + "' is of the same index; give all parts");
  expect_failure({p1, p2},
                 "part 3 of 3 is missing: '" + p2 + "' is of the same index; give all parts");
  expect_failure({p1, p2, p1, p3}, "part 1 is named twice: '" + p1 + "'; name each part once");
  expect_failure({p1, part("2/4"), p3},
                 "the part belongs to another index: it is part 2/4 of 7 shards");
  expect_failure({p1, p2, dir_ / "none.idx"}, "'" + dir_ / "none.idx" + "' (No such file");
  expect_failure({p1, dir_ / "all/0.tar"}, "not a Shardwise index: '" + dir_ / "all/0.tar");
  part("2/3", {"--column", "cls"});
  expect_failure({p1, p2, p3}, "the part was built with other options than the first one: '" + p2 +
                                   "'; build all parts with the same policies, columns and hashes");
  shardwise_output({"index", "-o", p2, dir_ / "all"});
  expect_failure({p1, p2, p3}, "the index is not a part: '" + p2 +
                                   "'; give the indexes that `shardwise index --part I/N` built");
}

TEST_F(MergeCommandTest, ADamagedPartIsNamed) {
  const std::string p1 = part("1/2"), p2 = part("2/2");
  for (const std::string& name : dir_.list()) {
    if (!name.starts_with("2-2.idx.")) continue;
    std::string bytes = read_file(dir_ / name);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_file(dir_ / name, bytes);
  }
  expect_failure({p1, p2}, "2-2.idx");
}

TEST_F(MergeCommandTest, WrongUsage) {
  EXPECT_EQ(shardwise({"merge", "-o", dir_ / "m.idx"}).code, 2);
  EXPECT_EQ(shardwise({"merge", part("1/1")}).code, 2);
  for (const char* wrong : {"0/3", "4/3", "3", "a/b", "1/", "/1", "1/0", "-1/3", "1/3x"}) {
    const Finished finished =
        shardwise({"index", "-o", dir_ / "p.idx", "--part", wrong, dir_ / "all"});
    EXPECT_EQ(finished.code, 2) << wrong;
    EXPECT_THAT(finished.err,
                HasSubstr("--part: '" + std::string(wrong) +
                          "' is not a part of a build; write I/N with I from 1 to N"));
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ / "p.idx"));
}

TEST_F(MergeCommandTest, NotesOfAPartNameTheShardsThatTheyAreAbout) {
  write_file(dir_ / "all/5.tar", TarBuilder().file("x.jpg", "x").bytes());  // no end marker
  const Finished finished =
      shardwise({"index", "-o", dir_ / "p.idx", "--part", "2/2", dir_ / "all"});
  EXPECT_EQ(finished.code, 0);
  EXPECT_THAT(finished.err, HasSubstr("all/5.tar"));
}

TEST_F(MergeCommandTest, APartIsNotBroughtUpToDateByItself) {
  const std::string p1 = part("1/2");
  const Finished finished = shardwise({"index", "-o", p1});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, HasSubstr("the index is part 1/2 of 7 shards: '" + p1 +
                                      "'; name the shards and the part again"));
}

TEST_F(MergeCommandTest, APartIsNoDataSetUnlessItIsMeant) {
  const std::string p2 = part("2/3");
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"epoch", p2},
                                             {"order", p2},
                                             {"when", p2, "--sample", "0", "--batch", "1"},
                                             {"explain", p2, "--step", "0", "--batch", "1"},
                                             {"plan", p2, "--nodes", "1", "--cache-bytes", "1M"}}) {
    SCOPED_TRACE(command[0]);
    const Finished refused = shardwise(command);
    EXPECT_EQ(refused.code, command[0] == "plan" ? 2 : 1);  // there all that is given wrong is 2
    EXPECT_THAT(refused.err, AllOf(HasSubstr("the index is only part 2/3 of 7 shards: '" + p2),
                                   HasSubstr("`shardwise merge`"), HasSubstr("--allow-part")));
    std::vector<std::string> meant = command;
    meant.push_back("--allow-part");
    EXPECT_EQ(shardwise(meant).code, 0) << shardwise(meant).err;
  }
  EXPECT_EQ(shardwise({"cat", p2, "0"}).code, 0) << "to look at, it is as good as a whole one";
  EXPECT_EQ(shardwise({"ls", p2}).code, 0);
}

}  // namespace
}  // namespace shardwise::test
