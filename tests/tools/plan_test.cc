// shardwise plan.

#include "shardwise_program.h"

namespace shardwise::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

nlohmann::json plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"plan", "--json"});
  return nlohmann::json::parse(shardwise_output(std::move(arguments)));
}

const std::vector<std::string> kAlike = {"--shards",
                                         "64",
                                         "--samples-per-shard",
                                         "100",
                                         "--shard-bytes",
                                         "1K",
                                         "--sampler",
                                         "sharded",
                                         "--world",
                                         "8",
                                         "--nodes",
                                         "4",
                                         "--cache-bytes",
                                         "16K"};

std::vector<std::string> alike(std::vector<std::string> more) {
  more.insert(more.begin(), kAlike.begin(), kAlike.end());
  return more;
}

TEST(PlanCommandTest, AnIndexIsPlannedWithoutReadingItsShards) {
  const SmallIndex index;  // shards of 3 and 4 samples
  const std::uint64_t a = read_file(index.dir() / "a.tar").size();
  const std::uint64_t b = read_file(index.dir() / "b.tar").size();
  std::filesystem::remove(index.dir() / "a.tar");
  const auto json = plan({index.path(), "--sampler", "sequential", "--world", "2", "--nodes", "1",
                          "--cache-bytes", "1M"});
  EXPECT_EQ(json["shards"], 2);
  EXPECT_EQ(json["shard_bytes"], a + b);
  EXPECT_EQ(json["cache_bytes"], 1 << 20);
  EXPECT_EQ(json["cache_bytes_for_once_an_epoch"], std::max(a, b));
  EXPECT_EQ(json["cache_bytes_for_once"], a + b);
  ASSERT_EQ(json["epochs"].size(), 3u);
  EXPECT_EQ(json["epochs"][0]["loads"], 2);
  EXPECT_EQ(json["epochs"][0]["lru"]["misses"], 2);
  EXPECT_EQ(json["epochs"][0]["lru"]["bytes_fetched"], a + b);
  EXPECT_EQ(json["epochs"][1]["next_use"]["bytes_fetched"], 0);
  ASSERT_EQ(json["nodes"].size(), 1u);
  EXPECT_EQ(json["nodes"][0]["ranks"], 2);
}

TEST(PlanCommandTest, CompressedShardsCountAsTheyAreExpanded) {
  const TempDir dir;
  const std::string tar = small_shard(0, 40);
  write_file(dir / "a.tar.gz", compress(tar, Compression::kGzip));
  shardwise_output({"index", "-o", dir / "x.idx", dir / "a.tar.gz"});
  EXPECT_EQ(plan({dir / "x.idx", "--nodes", "1", "--cache-bytes", "1M"})["shard_bytes"],
            tar.size());
}

TEST(PlanCommandTest, NodesWithTheirOwnStreamsFetchEachShardOnce) {
  const auto shared = plan(alike({"--epochs", "1"}));
  EXPECT_EQ(shared["epochs"][0]["next_use"]["bytes_fetched"], 4 * 64 * 1024);
  EXPECT_EQ(shared["nodes"][3]["counts_of_node"], 0) << "all four need the same";
  const auto apart = plan(alike({"--epochs", "2", "--streams", "8", "--epoch", "7"}));
  EXPECT_EQ(apart["epochs"][0]["epoch"], 7);
  EXPECT_EQ(apart["epochs"][0]["next_use"]["bytes_fetched"], 64 * 1024);
  ASSERT_EQ(apart["nodes"].size(), 4u);
  EXPECT_EQ(apart["nodes"][3]["counts_of_node"], 3);
  EXPECT_EQ(apart["nodes"][3]["first_rank"], 6);
  EXPECT_EQ(apart["nodes"][3]["epochs"][0]["shards"], 16);
}

TEST(PlanCommandTest, ATableForPeople) {
  const std::string text = shardwise_output([] {
    auto arguments = alike({"--epochs", "2", "--window", "1"});
    arguments.insert(arguments.begin(), "plan");
    return arguments;
  }());
  EXPECT_THAT(text, HasSubstr("shards       64, 64.0 KiB\n"));
  EXPECT_THAT(text, HasSubstr("nodes        4, with 2 ranks and a cache of 16.0 KiB each"));
  EXPECT_THAT(text, HasSubstr("0                256           256   256.0 KiB           256   "
                              "256.0 KiB\n"));
  EXPECT_THAT(text, HasSubstr("per node                  distinct shards         LRU fetches  "
                              "next-use fetches\n0 to 3                     64    64.0 KiB  "));
  EXPECT_THAT(text, HasSubstr("each shard once per epoch      from 1.0 KiB on (1024 bytes)"));
  EXPECT_THAT(text, HasSubstr("nothing twice in 2 epochs      from 64.0 KiB on (65536 bytes)"));
  EXPECT_THAT(text, Not(HasSubstr("smaller than")));
  auto tiny = alike({"--window", "32"});
  tiny.insert(tiny.begin(), "plan");
  EXPECT_THAT(shardwise_output(tiny),
              HasSubstr("the cache is smaller than the shards that are read"));
}

TEST(PlanCommandTest, SizesTakeUnits) {
  const auto cache_bytes = [](const char* text) {
    return plan({"--shards", "2", "--samples-per-shard", "10", "--shard-bytes", "1", "--nodes", "1",
                 "--cache-bytes", text})["cache_bytes"]
        .get<std::uint64_t>();
  };
  EXPECT_EQ(cache_bytes("0"), 0u);
  EXPECT_EQ(cache_bytes("512"), 512u);
  EXPECT_EQ(cache_bytes("512B"), 512u);
  EXPECT_EQ(cache_bytes("3k"), 3072u);
  EXPECT_EQ(cache_bytes("3KB"), 3000u);
  EXPECT_EQ(cache_bytes("3KiB"), 3072u);
  EXPECT_EQ(cache_bytes("20GiB"), std::uint64_t{20} << 30);
  EXPECT_EQ(cache_bytes("15E"), std::uint64_t{15} << 60);
  for (const char* wrong : {"", "-1", "1.5G", "G", "2X", "2GG", "2 G", "16E", "2iB"}) {
    const Finished finished =
        shardwise({"plan", "--shards", "2", "--samples-per-shard", "10", "--shard-bytes", "1",
                   "--nodes", "1", std::string("--cache-bytes=") + wrong});
    EXPECT_EQ(finished.code, 2) << wrong;
  }
}

TEST(PlanCommandTest, WhatCannotBePlannedSaysWhy) {
  const Finished unknown =
      shardwise({"plan", "--shards", "4", "--samples-per-shard", "10", "--shard-bytes", "100",
                 "--nodes", "1", "--cache-bytes", "1", "--sampler", "resampled"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.out, IsEmpty());
  EXPECT_THAT(unknown.err,
              HasSubstr("when each shard is needed: the resampled sampler; a cache will use "
                        "LRU, and fetches nothing twice if it holds all shards"));
  const auto usage_error = [](const std::vector<std::string>& arguments) {
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, 2) << finished.err;
    return finished.err;
  };
  EXPECT_THAT(usage_error({"plan", "--nodes", "1", "--cache-bytes", "1"}),
              HasSubstr("INDEX or --shards is required"));
  EXPECT_THAT(usage_error({"plan", "--shards", "4", "--nodes", "1", "--cache-bytes", "1"}),
              HasSubstr("--shards requires --s"));
  EXPECT_THAT(usage_error({"plan", "--shards", "99999999999", "--samples-per-shard", "1",
                           "--shard-bytes", "1", "--nodes", "1", "--cache-bytes", "1"}),
              HasSubstr("cannot plan for 99999999999 shards; at most 10 million are possible"));
  auto dealt = alike({"--nodes", "3"});
  dealt.insert(dealt.begin(), "plan");
  dealt.erase(dealt.begin() + 11, dealt.begin() + 13);  // the other --nodes
  EXPECT_THAT(
      usage_error(dealt),
      HasSubstr(
          "--world 8 is not divisible by --nodes 3: each node has the same number of ranks;"));
  auto rank = alike({"--rank", "0"});
  rank.insert(rank.begin(), "plan");
  EXPECT_THAT(usage_error(rank), HasSubstr("--rank does not apply to a plan"));
}

}  // namespace
}  // namespace shardwise::test
