// shardwise order, explain and when.

#include <algorithm>
#include <charconv>

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::HasSubstr;

std::vector<std::uint64_t> numbers_of(const std::string& text) {
  std::vector<std::uint64_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end; ++p) {
    p = std::from_chars(p, end, numbers.emplace_back()).ptr;
  }
  return numbers;
}

std::vector<std::uint64_t> order(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "order");
  return numbers_of(shardwise_output(std::move(arguments)));
}

TEST(OrderCommandTest, RanksShareEachNumberOnce) {
  constexpr std::uint64_t kSize = 1'000'003;
  constexpr std::uint64_t kWorld = 7;
  std::vector<bool> seen(kSize);
  std::uint64_t total = 0;
  for (std::uint64_t rank = 0; rank < kWorld; ++rank) {
    const auto numbers = order({"--size", std::to_string(kSize), "--world", std::to_string(kWorld),
                                "--rank", std::to_string(rank)});
    EXPECT_GE(numbers.size(), kSize / kWorld);
    EXPECT_LE(numbers.size(), kSize / kWorld + 1);
    for (const std::uint64_t number : numbers) {
      ASSERT_LT(number, kSize);
      EXPECT_FALSE(seen[number]) << number;
      seen[number] = true;
    }
    total += numbers.size();
  }
  EXPECT_EQ(total, kSize);
}

TEST(OrderCommandTest, UnderALauncherItIsTheLaunchersRank) {
  const auto wanted =
      shardwise_output({"order", "--size", "1000", "--world", "3", "--rank", "2", "--seed", "5"});
  const auto run_under = [](const std::vector<std::string>& variables,
                            const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"/usr/bin/env"};
    arguments.insert(arguments.end(), variables.begin(), variables.end());
    arguments.insert(arguments.end(),
                     {SHARDWISE_PROGRAM, "order", "--size", "1000", "--seed", "5"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const std::vector<std::vector<std::string>> launchers = {
      {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=3"},
      {"PMI_RANK=2", "PMI_SIZE=3"},
      {"SLURM_JOB_ID=1", "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=3",
       "SLURM_STEP_TASKS_PER_NODE=1(x3)", "SLURM_NODEID=2", "SLURM_LOCALID=0"},
      // No meeting point is needed: nobody is met.
      {"RANK=2", "WORLD_SIZE=3"}};
  for (const auto& launcher : launchers) {
    const auto result = run_under(launcher, {});
    EXPECT_EQ(result.out, wanted);
    EXPECT_THAT(result.err, HasSubstr("shardwise: note: this is rank 2 of 3, by "));
    EXPECT_EQ(run_under(launcher, {"--quiet"}).err, "");
    // What is said on the command line counts.
    EXPECT_EQ(run_under(launcher, {"--world", "1"}).out,
              shardwise_output({"order", "--size", "1000", "--seed", "5"}));
  }
  // A batch script of Slurm is no rank of its tasks.
  EXPECT_EQ(run_under({"SLURM_JOB_ID=1", "SLURM_PROCID=0", "SLURM_NTASKS=8"}, {}).out,
            shardwise_output({"order", "--size", "1000", "--seed", "5"}));
  const auto wrong = run_under({"RANK=0", "WORLD_SIZE=3", "PMI_RANK=1", "PMI_SIZE=3"}, {});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("RANK=0 and PMI_RANK=1"));
}

TEST(OrderCommandTest, SameArgumentsSameOrder) {
  const std::vector<std::string> base = {"--size", "5000", "--world", "4", "--rank", "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), base.begin(), base.end());
    return order(std::move(more));
  };
  const auto first = with({});
  EXPECT_EQ(with({}), first);
  EXPECT_EQ(with({"--seed", "0", "--epoch", "0", "--chunk", "1000"}), first);
  EXPECT_NE(with({"--seed", "1"}), first);
  EXPECT_NE(with({"--epoch", "1"}), first);
  EXPECT_NE(with({"--chunk", "10"}), first);
  EXPECT_NE(with({"--window", "2"}), first);
  EXPECT_NE(with({"--streams", "2"}), first);
}

TEST(OrderCommandTest, HugeSizesAnswerAtOnceInLittleMemory) {
  const Finished finished = shardwise({"order", "--size", "1000000000000", "--limit", "5"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(numbers_of(finished.out).size(), 5u);
  EXPECT_LT(finished.peak_memory_bytes, 50'000'000u);
}

TEST(OrderCommandTest, FromAndLimitCutThePartAsked) {
  const auto all = order({"--size", "100", "--world", "3", "--rank", "2"});
  const auto part =
      order({"--size", "100", "--world", "3", "--rank", "2", "--from", "10", "--limit", "5"});
  EXPECT_EQ(part, std::vector<std::uint64_t>(all.begin() + 10, all.begin() + 15));
  EXPECT_TRUE(order({"--size", "100", "--from", "100"}).empty());
  EXPECT_TRUE(order({"--size", "100", "--limit", "0"}).empty());
  const Finished beyond = shardwise({"order", "--size", "100", "--from", "101"});
  EXPECT_EQ(beyond.code, 1);
  EXPECT_THAT(beyond.err, HasSubstr("101"));
}

TEST(OrderCommandTest, SamplersAndTailsOfAnIndex) {
  const SmallIndex index;  // shards of 3 and 4 samples
  const std::vector<std::uint64_t> in_order = {0, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(order({index.path(), "--sampler", "sequential"}), in_order);
  EXPECT_EQ(order({index.path(), "--no-shuffle"}), in_order);
  auto sharded = order({index.path(), "--sampler", "sharded", "--window", "1"});
  ASSERT_EQ(sharded.size(), 7u);
  const bool first_shard_first = sharded[0] < 3;
  EXPECT_TRUE(std::all_of(sharded.begin(), sharded.begin() + (first_shard_first ? 3 : 4),
                          [&](std::uint64_t n) { return (n < 3) == first_shard_first; }));
  std::sort(sharded.begin(), sharded.end());
  EXPECT_EQ(sharded, in_order);
  const auto size_with = [&](const char* tail) {
    return order({index.path(), "--world", "2", "--rank", "1", "--tail", tail}).size();
  };
  EXPECT_EQ(size_with("exact"), 3u);
  EXPECT_EQ(size_with("drop"), 3u);
  EXPECT_EQ(size_with("pad"), 4u);
}

TEST(OrderCommandTest, WidsAndResampledOrders) {
  auto wids = order({"--size", "50", "--sampler", "wids", "--chunk", "10", "--shufflefirst"});
  EXPECT_NE(wids, order({"--size", "50", "--sampler", "wids", "--chunk", "10", "--epoch", "1"}));
  std::sort(wids.begin(), wids.end());
  EXPECT_EQ(wids, order({"--size", "50", "--sampler", "sequential"}));
  EXPECT_EQ(order({"--size", "50", "--sampler", "resampled"}).size(), 50u);
}

TEST(ExplainCommandTest, ShowsWhatOrderPrints) {
  const SmallIndex index;
  const auto lines = lines_of(
      shardwise_output({"explain", index.path(), "--world", "2", "--step", "1", "--batch", "2"}));
  ASSERT_EQ(lines.size(), 3u) << "of 7 samples rank 1 has one left";
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    const auto part = order({index.path(), "--world", "2", "--rank", std::to_string(rank)});
    for (std::uint64_t i = 0; i < part.size() && i < 4; ++i) {
      if (i < 2) continue;
      const std::string number = std::to_string(part[i]);
      const std::string shard = index.dir() / (part[i] < 3 ? "a.tar" : "b.tar");
      EXPECT_THAT(lines, testing::Contains(std::to_string(rank) + "\t" + number + "\t" + number +
                                           "\t" + shard));
    }
  }
}

TEST(WhenCommandTest, FindsWhatExplainShows) {
  const SmallIndex index;
  const auto part = order({index.path(), "--world", "2", "--rank", "1"});
  const std::string key = std::to_string(part[2]);
  const std::string expected = "rank 1, step 1, place 0\n";
  const std::vector<std::string> base = {"when", index.path(), "--world", "2", "--batch", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  EXPECT_EQ(shardwise_output(with({"--key", key})), expected);
  EXPECT_EQ(shardwise_output(with({"--sample", key})), expected);
  const Finished other_rank = shardwise(with({"--sample", key, "--rank", "0"}));
  EXPECT_EQ(other_rank.code, 1);
  EXPECT_THAT(other_rank.err, HasSubstr("is not read: epoch 0, rank 0"));
  EXPECT_EQ(shardwise(with({"--sample", "7"})).code, 1);
  EXPECT_EQ(shardwise(with({"--key", "none"})).code, 1);
}

}  // namespace
}  // namespace shardwise::test
