// Tests `shardwise cache`: what it shows, finds and removes.

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "served_shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/metrics_parser.h"

namespace shardwise::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CacheCommandTest : public ::testing::Test {
 protected:
  CacheCommandTest() {
    shardwise_output({"index", "--quiet", "-o", shards_.index(), "--keep", "--cache",
                      shards_.cache(), shards_.pattern()});
  }
  nlohmann::json json(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "cache");
    arguments.insert(arguments.end(), {"--json", shards_.cache()});
    return nlohmann::json::parse(shardwise_output(arguments));
  }
  std::vector<nlohmann::json> listed() const {
    return json_lines(shardwise_output({"cache", "ls", "--json", shards_.cache()}));
  }
  std::string shard(const std::string& name) const {
    return shards_.cache() + "/shards/" + name + ".tar";
  }

  ServedShards shards_;
  const std::uint64_t shard_bytes_ = ServedShards::shard_bytes();
};

TEST_F(CacheCommandTest, LsShowsEachShard) {
  const auto all = listed();
  ASSERT_EQ(all.size(), 10U);
  EXPECT_THAT(all[0]["url"].get<std::string>(), HasSubstr(shards_.server.url("/")));
  EXPECT_EQ(all[0]["size"], shard_bytes_);
  EXPECT_EQ(all[0]["hash"].get<std::string>().size(), 32U);
  EXPECT_EQ(all[0]["validator"], "\"v1\"");
  EXPECT_EQ(all[0]["in_use"], false);
  EXPECT_EQ(all[0]["last_use"].get<std::string>().back(), 'Z');
  const auto lines = lines_of(shardwise_output({"cache", "ls", shards_.cache()}));
  EXPECT_THAT(lines[0], AllOf(HasSubstr(all[0]["name"].get<std::string>()),
                              HasSubstr(all[0]["url"].get<std::string>())));
  EXPECT_THAT(lines.back(), HasSubstr("10 shards, "));
}

TEST_F(CacheCommandTest, VerifyFindsDamageAndRemovesIt) {
  EXPECT_EQ(shardwise_output({"cache", "verify", "--quiet", shards_.cache()}),
            "10 shards, 0 damaged, 0 without a recorded hash, 0 foreign files\n");
  const auto all = listed();
  const std::string damaged = all[2]["name"], unknown = all[5]["name"];
  std::string bytes = read_file(shard(damaged));
  bytes[600] ^= 1;
  write_file(shard(damaged), bytes);
  fs::remove(shards_.cache() + "/shards/" + unknown + ".json");
  write_file(shards_.cache() + "/shards/notes.txt", "mine");
  const Finished found = shardwise({"cache", "verify", "--quiet", shards_.cache()});
  EXPECT_EQ(found.code, 1);
  EXPECT_THAT(
      found.out,
      AllOf(HasSubstr("DAMAGED  " + damaged + "  " + all[2]["url"].get<std::string>()),
            HasSubstr("UNKNOWN  " + unknown + "  ?"), HasSubstr("FOREIGN  notes.txt"),
            HasSubstr("10 shards, 1 damaged, 1 without a recorded hash, 1 foreign file\n")));
  EXPECT_EQ(found.err,
            "shardwise: error: shards in the cache are damaged, or have no recorded hash: '" +
                shards_.cache() +
                "'; remove these shards with `shardwise cache verify --remove`; the next use "
                "fetches them "
                "again\n");
  const auto removed = json({"verify", "--remove"});
  EXPECT_EQ(removed["damaged"].size(), 2U);
  EXPECT_EQ(removed["damaged"][0]["removed"], true);
  EXPECT_EQ(removed["foreign"], nlohmann::json({"notes.txt"}));
  EXPECT_TRUE(fs::exists(shards_.cache() + "/shards/notes.txt")) << "not ours to remove";
  EXPECT_EQ(listed().size(), 8U);
  const auto epoch = nlohmann::json::parse(shardwise_output(
      {"epoch", "--quiet", "--json", shards_.index(), "--cache", shards_.cache()}));
  EXPECT_EQ(epoch["cache"]["fetched"], 2);
}

TEST_F(CacheCommandTest, PruneAndClearRemoveTheLeastRecentlyUsed) {
  const auto all = listed();
  const auto pruned = json({"prune", "--to", std::to_string(4 * shard_bytes_)});
  EXPECT_EQ(pruned, (nlohmann::json{{"dry_run", false},
                                    {"num_removed", 6},
                                    {"removed_bytes", 6 * shard_bytes_},
                                    {"num_in_use", 0},
                                    {"removed", 6},
                                    {"in_use", 0}}));
  std::vector<nlohmann::json> left = listed();
  ASSERT_EQ(left.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(left[i]["name"], all[6 + i]["name"]);
  EXPECT_THAT(shardwise_output({"cache", "clear", shards_.cache()}), HasSubstr("removed 4 shards"));
  EXPECT_EQ(shardwise_output({"cache", "ls", shards_.cache()}), "0 shards, 0 B\n");
}

TEST_F(CacheCommandTest, ADryRunRemovesNothingAndSaysWhatWouldGo) {
  const auto all = listed();
  const std::string to = std::to_string(4 * shard_bytes_);
  const auto planned = json({"prune", "--dry-run", "--to", to});
  EXPECT_EQ(planned["dry_run"], true);
  EXPECT_EQ(planned["num_removed"], 6);
  EXPECT_EQ(planned["removed_bytes"], 6 * shard_bytes_);
  ASSERT_EQ(planned["names"].size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(planned["names"][i], all[i]["name"]);
  EXPECT_THAT(shardwise_output({"cache", "clear", "--dry-run", shards_.cache()}),
              HasSubstr("would remove 10 shards, "));
  EXPECT_EQ(listed().size(), 10U);
  auto done = json({"prune", "--to", to});
  EXPECT_EQ(done["num_removed"], planned["num_removed"]);
  EXPECT_EQ(done["removed_bytes"], planned["removed_bytes"]);
  EXPECT_THAT(lines_of(shardwise_output({"cache", "ls", "--header", shards_.cache()}))[0],
              ::testing::StartsWith("name "));
}

TEST_F(CacheCommandTest, WhatIsInUseStays) {
  const auto data =
      Dataset::open(shards_.index(), {.cache = ShardCache::open({.directory = shards_.cache()})});
  const Sample sample = data[45];
  int in_use = 0;
  for (const auto& entry : listed()) {
    if (!entry["in_use"].get<bool>()) continue;
    ++in_use;
    EXPECT_THAT(entry["url"].get<std::string>(), HasSubstr("/2.tar"));
    EXPECT_EQ(entry["users"], nlohmann::json({::getpid()}));
    EXPECT_EQ(entry["fetcher"], nullptr);
  }
  EXPECT_EQ(in_use, 1);
  EXPECT_THAT(shardwise_output({"cache", "ls", shards_.cache()}),
              HasSubstr("  (in use by " + std::to_string(::getpid()) + ")\n"));
  EXPECT_THAT(
      shardwise_output({"cache", "clear", shards_.cache()}),
      AllOf(HasSubstr("removed 9 shards"), HasSubstr("1 shard was not removed, because in use")));
  EXPECT_EQ(sample.copy("jpg"), "image 145");
  EXPECT_EQ(listed().size(), 1U);
}

TEST_F(CacheCommandTest, LsNamesWhoFetchesAndWhoExpects) {
  shardwise_output({"cache", "clear", shards_.cache()});
  shards_.server.serve("/3.tar", {.body = ServedShards::body(3), .stall_after = 100});
  const int before = shards_.server.gets("/3.tar");
  Process filling({SHARDWISE_PROGRAM, "cache", "fill", shards_.index(), "--quiet", "--sampler",
                   "sequential", "--threads", "1", "--cache", shards_.cache()});
  while (shards_.server.gets("/3.tar") == before) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto all = listed();
  const std::string text = shardwise_output({"cache", "ls", shards_.cache()});
  filling.send(SIGINT);
  EXPECT_EQ(filling.wait().code, 130);
  ASSERT_EQ(all.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i]["being_fetched"], false);
  const nlohmann::json& coming = all[3];
  EXPECT_EQ(coming["being_fetched"], true);
  ASSERT_TRUE(coming["fetcher"].is_number());
  EXPECT_NE(coming["fetcher"], ::getpid());
  EXPECT_EQ(coming["size"], shard_bytes_);
  EXPECT_EQ(coming["expected_by"], nlohmann::json({coming["fetcher"]}));
  EXPECT_THAT(text, HasSubstr("(being fetched by " + coming["fetcher"].dump()));
  EXPECT_THAT(text, HasSubstr("1 shard is being fetched, "));
}

TEST_F(CacheCommandTest, MetricsOfTheCacheAndOfAProcess) {
  const std::string file = shards_.dir / "a.prom";
  shardwise_output({"cache", "ls", "--metrics", file, shards_.cache()});
  const MetricsText directory(read_file(file));
  EXPECT_EQ(directory.value("shardwise_cache_shards"), 10);
  EXPECT_EQ(directory.value("shardwise_cache_shard_bytes"),
            10.0 * static_cast<double>(shard_bytes_));
  EXPECT_EQ(directory.labels("shardwise_cache_shards").at("directory"), shards_.cache());
  shardwise_output(
      {"epoch", shards_.index(), "--quiet", "--cache", shards_.cache(), "--metrics", file});
  EXPECT_EQ(MetricsText(read_file(file)).value("shardwise_cache_fetched_shards_total"), 0);
  EXPECT_GT(MetricsText(read_file(file)).value("shardwise_cache_hits_total"), 0);
}

TEST_F(CacheCommandTest, AReadOnlyCacheByOption) {
  const std::string gone = listed()[4]["name"];
  fs::remove(shard(gone));
  const Finished finished = shardwise(
      {"epoch", shards_.index(), "--quiet", "--cache", shards_.cache(), "--cache-read-only"});
  expect_failure(finished, {"read-only cache"});
  EXPECT_EQ(listed().size(), 9U);
  shardwise_output({"epoch", shards_.index(), "--quiet", "--cache", shards_.cache()});
  const int before = shards_.gets();
  shardwise_output(
      {"epoch", shards_.index(), "--quiet", "--cache", shards_.cache(), "--cache-read-only"});
  EXPECT_EQ(shards_.gets(), before);
}

TEST_F(CacheCommandTest, ACacheOfAGroup) {
  const std::string shared = shards_.dir / "shared";
  shardwise_output({"epoch", shards_.index(), "--quiet", "--cache", shared, "--cache-group"});
  expect_failure(shardwise({"epoch", shards_.index(), "--quiet", "--cache", shared}),
                 {"the directory is shared with its group", "--cache-group"});
  EXPECT_THAT(shardwise_output({"cache", "ls", shared}), HasSubstr("10 shards"));
  EXPECT_THAT(shardwise_output({"cache", "clear", shared}), HasSubstr("removed 10 shards"));
}

TEST_F(CacheCommandTest, WrongUsageAndWhatIsNoCache) {
  const auto error = [](std::vector<std::string> arguments, int code) {
    arguments.insert(arguments.begin(), "cache");
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, code) << finished.err;
    return finished.err;
  };
  EXPECT_THAT(error({}, 2), HasSubstr("Usage: shardwise cache COMMAND"));
  EXPECT_THAT(error({"ls"}, 2), HasSubstr("DIR is required"));
  EXPECT_THAT(error({"prune", shards_.cache()}, 2), HasSubstr("--to is required"));
  EXPECT_THAT(error({"prune", shards_.cache(), "--to", "x"}, 2), HasSubstr("'x' is not a size"));
  EXPECT_THAT(error({"empty", shards_.cache()}, 2), HasSubstr("shardwise: error: "));
  for (const char* command : {"ls", "verify", "clear"}) {
    EXPECT_THAT(error({command, shards_.dir / "none"}, 1),
                HasSubstr("'" + (shards_.dir / "none") + "'"));
    EXPECT_FALSE(fs::exists(shards_.dir / "none")) << "looking makes nothing";
    EXPECT_THAT(error({command, shards_.dir.path()}, 1),
                AllOf(HasSubstr("cannot be a shard cache (the directory has other files"),
                      HasSubstr("name an empty directory")));
    EXPECT_THAT(error({command, shards_.index()}, 1), HasSubstr("(the path names a file)"));
  }
}

}  // namespace
}  // namespace shardwise::test
