// Tests `shardwise cache fill`, which fetches shards before a job starts, so that the job finds
// them in its cache.

#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "served_shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/storage/shard_cache.h"

namespace shardwise::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class FillTest : public ::testing::Test {
 protected:
  FillTest() { shardwise_output({"index", "--quiet", "-o", shards_.index(), shards_.pattern()}); }

  std::vector<std::string> command(std::vector<std::string> more) const {
    more.insert(more.begin(),
                {"cache", "fill", shards_.index(), "--quiet", "--cache", shards_.cache()});
    return more;
  }
  nlohmann::json fill(std::vector<std::string> more = {}) const {
    more.emplace_back("--json");
    return nlohmann::json::parse(shardwise_output(command(std::move(more))));
  }
  /// Returns the number of shards that `epoch` fetches with these options.
  int fetched_by_epoch(std::vector<std::string> more) const {
    more.insert(more.begin(),
                {"epoch", shards_.index(), "--quiet", "--json", "--cache", shards_.cache()});
    return nlohmann::json::parse(shardwise_output(more))["cache"]["fetched"];
  }
  std::set<std::string> cached_urls() const {
    std::set<std::string> urls;
    for (const auto& entry :
         json_lines(shardwise_output({"cache", "ls", "--json", shards_.cache()}))) {
      urls.insert(entry["url"].get<std::string>());
    }
    return urls;
  }
  std::string bytes_of(int shards) const { return std::to_string(shards * shard_bytes_); }

  ServedShards shards_;
  const std::uint64_t shard_bytes_ = ServedShards::shard_bytes();
};

TEST_F(FillTest, AllComesWhenItFits) {
  const int before = shards_.gets();
  const auto filled = fill({"--threads", "3"});
  EXPECT_EQ(filled, (nlohmann::json{{"dry_run", false},
                                    {"order_known", true},
                                    {"shards", 10},
                                    {"fetched", 10},
                                    {"fetched_bytes", 10 * shard_bytes_},
                                    {"present", 0},
                                    {"present_bytes", 0},
                                    {"not_fitting", 0},
                                    {"not_fitting_bytes", 0},
                                    {"left_out", 0},
                                    {"left_out_bytes", 0}}));
  EXPECT_EQ(shards_.gets() - before, 10);
  EXPECT_EQ(fetched_by_epoch({}), 0);
  const auto again = fill();
  EXPECT_EQ(again["present"], 10);
  EXPECT_EQ(again["fetched"], 0);
  EXPECT_EQ(shards_.gets() - before, 10);
}

TEST_F(FillTest, WhatIsNeededFirstComesUntilTheBudgetIsFull) {
  const std::vector<std::string> order = {"--no-shuffle", "--cache-bytes", bytes_of(4)};
  const auto filled = fill(order);
  EXPECT_EQ(filled["fetched"], 4);
  EXPECT_EQ(filled["not_fitting"], 6);
  EXPECT_EQ(filled["not_fitting_bytes"], 6 * shard_bytes_);
  std::set<std::string> first;
  for (int i = 0; i < 4; ++i) first.insert(shards_.server.url(ServedShards::path(i)));
  EXPECT_EQ(cached_urls(), first);
  // Without prefetch, because the job might otherwise begin to fetch the next epoch's shards.
  EXPECT_EQ(fetched_by_epoch({"--no-shuffle", "--cache-bytes", bytes_of(4), "--prefetch", "0",
                              "--threads", "0", "--batch", "10"}),
            6)
      << "the job has the first four";
}

TEST_F(FillTest, ASmallerBudgetIsKeptAlsoIfNothingHasToCome) {
  EXPECT_EQ(fill()["fetched"], 10);
  const auto again = fill({"--no-shuffle", "--cache-bytes", bytes_of(4)});
  EXPECT_EQ(again["fetched"], 0);
  EXPECT_EQ(again["present"], 4);
  EXPECT_EQ(again["not_fitting"], 6);
  std::set<std::string> first;
  for (int i = 0; i < 4; ++i) first.insert(shards_.server.url(ServedShards::path(i)));
  EXPECT_EQ(cached_urls(), first);
}

TEST_F(FillTest, WhatIsThereAndIsNotNeededGoesFirst) {
  const auto of_rank = [&](const std::string& rank) {
    return fill({"--sampler", "sequential", "--world", "5", "--streams", "5", "--rank", rank,
                 "--cache-bytes", bytes_of(2)});
  };
  EXPECT_EQ(of_rank("0")["fetched"], 2);
  EXPECT_EQ(of_rank("3")["fetched"], 2);
  EXPECT_EQ(cached_urls(),
            (std::set<std::string>{shards_.server.url("/6.tar"), shards_.server.url("/7.tar")}));
}

TEST_F(FillTest, OnlyWhatTheRanksNeed) {
  const std::vector<std::string> order = {"--sampler", "sequential", "--world",
                                          "5",         "--streams",  "5"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), order.begin(), order.end());
    return more;
  };
  const auto rank = fill(with({"--rank", "3"}));
  EXPECT_EQ(rank["shards"], 2);
  EXPECT_EQ(cached_urls(),
            (std::set<std::string>{shards_.server.url("/6.tar"), shards_.server.url("/7.tar")}));
  EXPECT_EQ(fetched_by_epoch(with({"--rank", "3"})), 0);
  shardwise_output({"cache", "clear", shards_.cache()});
  const auto node = fill({"--sampler", "sequential", "--world", "10", "--streams", "10", "--nodes",
                          "5", "--node", "0"});
  EXPECT_EQ(node["shards"], 2);
  EXPECT_EQ(cached_urls(),
            (std::set<std::string>{shards_.server.url("/0.tar"), shards_.server.url("/1.tar")}));
}

TEST_F(FillTest, AnOrderThatIsNotKnownTakesTheIndexes) {
  const Finished finished =
      shardwise(command({"--sampler", "resampled", "--json", "--cache-bytes", bytes_of(3)}));
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("in the order of the index"));
  const auto filled = nlohmann::json::parse(finished.out);
  EXPECT_EQ(filled["order_known"], false);
  EXPECT_EQ(filled["fetched"], 3);
  EXPECT_EQ(cached_urls().count(shards_.server.url("/2.tar")), 1U);
}

TEST_F(FillTest, ADryRunFetchesAndMakesNothing) {
  const int before = shards_.gets();
  const auto planned = fill({"--dry-run", "--cache-bytes", bytes_of(7)});
  EXPECT_EQ(planned["fetched"], 7);
  EXPECT_EQ(planned["not_fitting"], 3);
  EXPECT_FALSE(fs::exists(shards_.cache()));
  EXPECT_EQ(shards_.gets(), before);
  fill({"--cache-bytes", bytes_of(2)});
  EXPECT_EQ(fill({"--dry-run", "--cache-bytes", "70%"})["present"], 2);
}

TEST_F(FillTest, TheSummaryIsOneLine) {
  const Finished finished = shardwise(command({"--cache-bytes", bytes_of(9)}));
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.err, ::testing::IsEmpty());
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("fetched 9 shards, "),
                    HasSubstr("; already in the cache 0 shards, 0 B; did not fit 1 shard, ")));
}

TEST_F(FillTest, AShardThatFailsIsNamedAndTheOthersStay) {
  shards_.server.remove("/5.tar");
  const Finished finished = shardwise(command({"--sampler", "sequential", "--threads", "1"}));
  expect_failure(finished, {"404", "/5.tar"});
  EXPECT_EQ(cached_urls().size(), 5U);
  EXPECT_THAT(shards_.half_written(), ::testing::IsEmpty());
}

TEST_F(FillTest, CtrlCKeepsWhatIsWhole) {
  shards_.server.serve("/5.tar", {.body = ServedShards::body(5), .stall_after = 100});
  std::vector<std::string> arguments = command({"--sampler", "sequential", "--threads", "1"});
  arguments.insert(arguments.begin(), SHARDWISE_PROGRAM);
  const int before = shards_.server.gets("/5.tar");
  Process filling(arguments);
  while (shards_.server.gets("/5.tar") == before) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  filling.send(SIGINT);
  const Finished finished = filling.wait();
  EXPECT_EQ(finished.code, 130);
  EXPECT_THAT(finished.err, HasSubstr("interrupted; 5 shards are complete in '"));
  EXPECT_EQ(cached_urls().size(), 5U);
  EXPECT_THAT(shards_.half_written(), ::testing::IsEmpty());
}

TEST_F(FillTest, FromTheFolderWhereAllShardsAreToday) {
  TestHttpServer today;
  for (int i = 0; i < ServedShards::kShards; ++i) {
    today.serve("/moved" + ServedShards::path(i), {.body = ServedShards::body(i)});
  }
  const int before = shards_.gets();
  EXPECT_EQ(fill({"--url-base", today.url("/moved")})["fetched"], 10);
  EXPECT_EQ(shards_.gets(), before);
  EXPECT_EQ(today.gets("/moved/7.tar"), 1);
  EXPECT_EQ(cached_urls().count(shards_.server.url("/7.tar")), 1U) << "known by the index's URL";
  const Finished without = shardwise(
      {"index", "-o", shards_.dir / "y.idx", shards_.pattern(), "--url-base", today.url("/moved")});
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, HasSubstr("--url-base: NEW alone is for updates of an index; with "
                                     "SOURCE write OLD=NEW; see shardwise index"));
}

TEST_F(FillTest, WrongUsage) {
  const auto error = [&](std::vector<std::string> more) {
    const Finished finished = shardwise(command(std::move(more)));
    EXPECT_EQ(finished.code, 2) << finished.err;
    return finished.err;
  };
  EXPECT_THAT(error({"--epochs", "0"}), HasSubstr("--epochs is 0"));
  EXPECT_THAT(error({"--nodes", "2"}), HasSubstr("--node"));
  EXPECT_THAT(error({"--world", "4", "--nodes", "2", "--node", "2"}),
              HasSubstr("--node 2 is not below --nodes 2"));
  EXPECT_THAT(error({"--world", "4", "--nodes", "3", "--node", "0"}),
              HasSubstr("--world 4 is not a multiple of --nodes 3"));
  EXPECT_THAT(error({"--world", "4", "--rank", "1", "--nodes", "2", "--node", "0"}),
              HasSubstr("--rank"));
  const Finished without = shardwise({"cache", "fill", shards_.index()});
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, HasSubstr("--cache is required"));
}

}  // namespace
}  // namespace shardwise::test
