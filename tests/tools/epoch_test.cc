// `shardwise epoch`: what it reads, counts and proves.

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

nlohmann::json epoch(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"epoch", "--json", "--quiet"});
  return nlohmann::json::parse(shardwise_output(std::move(arguments)));
}

TEST(EpochCommandTest, LoadsEverySampleOnceWhateverTheRanksAndThreads) {
  const SmallIndex index;
  const auto one = epoch({index.path()});
  EXPECT_EQ(one["samples"], 7);
  EXPECT_EQ(one["bytes"], 7 * 8);
  EXPECT_EQ(one["proof"], "epoch 0: 7 samples, each exactly once: proven");
  EXPECT_EQ(one["shards_opened"], 2);
  for (const char* world : {"2", "3", "7", "9"}) {
    for (const char* threads : {"0", "1", "4"}) {
      const auto many = epoch({index.path(), "--world", world, "--threads", threads, "--batch", "2",
                               "--epoch", "5", "--sampler", "sharded"});
      EXPECT_EQ(many["samples"], 7);
      EXPECT_EQ(many["checksum"], one["checksum"]);
      EXPECT_EQ(many["proof"], "epoch 5: 7 samples, each exactly once: proven");
    }
  }
}

TEST(EpochCommandTest, OneRankProvesItsPart) {
  const SmallIndex index;
  const auto part = epoch({index.path(), "--world", "2", "--rank", "1"});
  EXPECT_EQ(part["samples"], 3);
  EXPECT_EQ(part["rank"], 1);
  EXPECT_EQ(part["proof"], "epoch 0: rank 1 of 2: 3 samples as ordered: proven");
}

TEST(EpochCommandTest, TailsAreSaidInTheProof) {
  const SmallIndex index;
  EXPECT_EQ(epoch({index.path(), "--world", "2", "--tail", "drop"})["samples"], 6);
  const auto padded = epoch({index.path(), "--world", "2", "--tail", "pad"});
  EXPECT_EQ(padded["samples"], 8);
  EXPECT_THAT(padded["proof"].get<std::string>(), HasSubstr("1 repeated as asked: proven"));
}

TEST(EpochCommandTest, OrdersThatAreNotExactSaySo) {
  const SmallIndex index;
  EXPECT_EQ(epoch({index.path(), "--sampler", "resampled", "--world", "2"})["proof"],
            "epoch 0: 7 samples drawn with replacement, as ordered: proven");
}

TEST(EpochCommandTest, ReadsWhatItWouldMap) {
  const SmallIndex index;
  const auto mapped = epoch({index.path(), "--access", "map"});
  const auto read = epoch({index.path(), "--access", "read"});
  EXPECT_EQ(read["checksum"], mapped["checksum"]);
  EXPECT_EQ(read["proof"], mapped["proof"]);
}

TEST(EpochCommandTest, PrintsForPeople) {
  const SmallIndex index;
  const std::string text = shardwise_output({"epoch", index.path()});
  EXPECT_THAT(text, HasSubstr("samples   7\n"));
  EXPECT_EQ(lines_of(text).back(), "epoch 0: 7 samples, each exactly once: proven");
}

TEST(EpochCommandTest, AChangedShardStopsIt) {
  const SmallIndex index;
  write_file(index.dir() / "b.tar", small_shard(3, 5));
  const Finished finished = shardwise({"epoch", index.path()});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, HasSubstr("b.tar"));
  EXPECT_THAT(finished.out, testing::Not(HasSubstr("proven")));
}

/// SmallIndex's shards, with the label as a column.
std::string labelled(const SmallIndex& index) {
  shardwise_output({"index", "-o", index.path(), "--column", "cls", index.dir() / "a.tar",
                    index.dir() / "b.tar"});
  return index.path();
}

TEST(EpochWhereTest, LoadsAndProvesOnlyTheSamplesForWhichItHolds) {
  const SmallIndex index;
  const std::string path = labelled(index);
  const auto some = epoch({path, "--where", "cls >= 5 OR key = '0'", "--world", "2"});
  EXPECT_EQ(some["samples"], 3);
  EXPECT_EQ(some["bytes"], 3 * 8);
  EXPECT_EQ(some["proof"], "epoch 0: 3 samples, each exactly once: proven");
  EXPECT_EQ(some["shards_opened"], 2);
  EXPECT_EQ(epoch({path, "--where", "cls >= 5"})["shards_opened"], 1) << "b.tar alone";
  EXPECT_EQ(epoch({path, "--where", "1", "--access", "read"})["samples"], 7);
}

TEST(EpochWhereTest, NoMatchIsAnErrorUnlessItIsAskedFor) {
  const SmallIndex index;
  const TempDir dir;
  write_file(dir / "none.tar", TarBuilder().file("README", "x").end().bytes());
  shardwise_output({"index", "-o", dir / "none.idx", "--on-no-field", "skip", dir / "none.tar"});
  write_file(dir / "skip", "0\n1\n2\n3\n4\n5\n6\n");
  const std::vector<std::vector<std::string>> empty = {
      {index.path(), "--where", "key = 'none'"},
      {index.path(), "--where", "1=0", "--sampler", "sequential", "--world", "3"},
      {index.path(), "--where", "1=0", "--sampler", "sharded", "--world", "3", "--rank", "1"},
      {dir / "none.idx"}};
  for (std::vector<std::string> arguments : empty) {
    arguments.insert(arguments.begin(), {"epoch", "--quiet", "--json"});
    expect_failure(shardwise(arguments), {"there is no sample to read", "--allow-empty"});
    arguments.push_back("--allow-empty");
    const auto none = nlohmann::json::parse(shardwise_output(arguments));
    EXPECT_EQ(none["samples"], 0);
    EXPECT_TRUE(none["proof"].is_null()) << none;
  }
  // A list that leaves out all asks for it; and a rank may have none of the samples that there are.
  EXPECT_EQ(epoch({index.path(), "--skip", dir / "skip"})["proof"],
            "epoch 0: 0 samples, each exactly once, 7 left out as asked: proven");
  EXPECT_EQ(epoch({index.path(), "--world", "9", "--rank", "8"})["samples"], 0);
}

TEST(EpochWhereTest, BadSqlIsAnErrorWithSqlitesReason) {
  const SmallIndex index;
  const std::pair<const char*, const char*> wrong[] = {
      {"lable = 1", "no such column: lable"},
      {"cls >", "incomplete input"},
      {"1; DELETE FROM shards", "more than one condition"},
      {"1) OR (1", "near \")\": syntax error"},
      {"1) --", "syntax error"},
  };
  for (const auto& [condition, reason] : wrong) {
    const Finished finished = shardwise({"epoch", index.path(), "--quiet", "--where", condition});
    EXPECT_EQ(finished.code, 1) << condition;
    EXPECT_EQ(finished.out, "") << condition;
    EXPECT_THAT(finished.err, AllOf(StartsWith("shardwise: error: "), HasSubstr(reason)));
    EXPECT_EQ(lines_of(finished.err).size(), 1U) << finished.err;
  }
}

TEST(EpochBalanceTest, StepsOfNearEqualBytesHoldTheSameSamplesAndAreProven) {
  const SmallIndex index;
  const auto plain = epoch({index.path(), "--world", "3"});
  for (const char* sampler : {"chunked", "sharded", "sequential"}) {
    const auto balanced =
        epoch({index.path(), "--world", "3", "--balance-bytes", "--sampler", sampler});
    EXPECT_EQ(balanced["checksum"], plain["checksum"]);
    EXPECT_EQ(balanced["proof"], "epoch 0: 7 samples, each exactly once: proven");
  }
  const auto chosen =
      epoch({index.path(), "--world", "2", "--balance-bytes", "--where", "sample < 4"});
  EXPECT_EQ(chosen["proof"], "epoch 0: 4 samples, each exactly once: proven");
}

TEST(EpochBalanceTest, WhereItCannotBeDoneItSaysWhy) {
  const SmallIndex index;
  const Finished wids = shardwise({"epoch", index.path(), "--balance-bytes", "--sampler", "wids"});
  EXPECT_EQ(wids.code, 2);
  EXPECT_THAT(wids.err, AllOf(HasSubstr("--balance-bytes does not apply to the wids sampler"),
                              HasSubstr("it is for all others")));
}

}  // namespace
}  // namespace shardwise::test
