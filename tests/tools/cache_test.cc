// `shardwise cache`: what it shows, finds and removes.

#include <filesystem>

#include "served_shards.h"
#include "shardwise/data/dataset.h"
#include "shardwise/storage/shard_cache.h"

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
            "10 shards, 0 damaged, 0 without a record, 0 foreign files\n");
  const auto all = listed();
  const std::string damaged = all[2]["name"], unknown = all[5]["name"];
  std::string bytes = read_file(shard(damaged));
  bytes[600] ^= 1;
  write_file(shard(damaged), bytes);
  fs::remove(shards_.cache() + "/shards/" + unknown + ".json");
  write_file(shards_.cache() + "/shards/notes.txt", "mine");
  const Finished found = shardwise({"cache", "verify", "--quiet", shards_.cache()});
  EXPECT_EQ(found.code, 1);
  EXPECT_THAT(found.out,
              AllOf(HasSubstr("DAMAGED  " + damaged + "  " + all[2]["url"].get<std::string>()),
                    HasSubstr("UNKNOWN  " + unknown + "  ?"), HasSubstr("FOREIGN  notes.txt"),
                    HasSubstr("10 shards, 1 damaged, 1 without a record, 1 foreign file\n")));
  EXPECT_EQ(
      found.err,
      "shardwise: error: shards in the cache differ from what was fetched: '" + shards_.cache() +
          "'; remove them with `shardwise cache verify --remove`; they are fetched again when "
          "needed\n");
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
  EXPECT_EQ(pruned,
            (nlohmann::json{{"removed", 6}, {"removed_bytes", 6 * shard_bytes_}, {"in_use", 0}}));
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
  EXPECT_EQ(planned["removed"], 6);
  EXPECT_EQ(planned["removed_bytes"], 6 * shard_bytes_);
  ASSERT_EQ(planned["names"].size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(planned["names"][i], all[i]["name"]);
  EXPECT_THAT(shardwise_output({"cache", "clear", "--dry-run", shards_.cache()}),
              HasSubstr("would remove 10 shards, "));
  EXPECT_EQ(listed().size(), 10U);
  auto done = json({"prune", "--to", to});
  EXPECT_EQ(done["removed"], planned["removed"]);
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
  }
  EXPECT_EQ(in_use, 1);
  EXPECT_THAT(shardwise_output({"cache", "ls", shards_.cache()}), HasSubstr("  (in use)\n"));
  EXPECT_THAT(shardwise_output({"cache", "clear", shards_.cache()}),
              AllOf(HasSubstr("removed 9 shards"), HasSubstr("1 stay, because they are in use")));
  EXPECT_EQ(sample.copy("jpg"), "image 145");
  EXPECT_EQ(listed().size(), 1U);
}

TEST_F(CacheCommandTest, WrongUsageAndWhatIsNoCache) {
  const auto error = [](std::vector<std::string> arguments, int code) {
    arguments.insert(arguments.begin(), "cache");
    const Finished finished = shardwise(arguments);
    EXPECT_EQ(finished.code, code) << finished.err;
    return finished.err;
  };
  EXPECT_THAT(error({}, 2), HasSubstr("needs a command"));
  EXPECT_THAT(error({"ls"}, 2), HasSubstr("DIR is required"));
  EXPECT_THAT(error({"prune", shards_.cache()}, 2), HasSubstr("--to is required"));
  EXPECT_THAT(error({"prune", shards_.cache(), "--to", "x"}, 2), HasSubstr("'x' is not a size"));
  EXPECT_THAT(error({"empty", shards_.cache()}, 2), HasSubstr("shardwise: error: "));
  for (const char* command : {"ls", "verify", "clear"}) {
    EXPECT_THAT(error({command, shards_.dir / "none"}, 1),
                HasSubstr("'" + (shards_.dir / "none") + "'"));
    EXPECT_FALSE(fs::exists(shards_.dir / "none")) << "looking makes nothing";
    EXPECT_THAT(error({command, shards_.dir.path()}, 1),
                AllOf(HasSubstr("cannot be a shard cache (it holds other files"),
                      HasSubstr("give an empty directory, or one that does not exist")));
    EXPECT_THAT(error({command, shards_.index()}, 1), HasSubstr("(it is a file)"));
  }
}

}  // namespace
}  // namespace shardwise::test
