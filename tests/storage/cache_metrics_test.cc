// The metrics for node_exporter: their content, and when they are written.

#include <sys/wait.h>
#include <unistd.h>

#include "storage/cache_metrics.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/metrics_parser.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::MetricsText;
using test::TempDir;
using ::testing::HasSubstr;

TEST(CacheMetricsText, IsWhatTheFormatSays) {
  ShardCache::Stats stats;
  stats.hits = 7;
  stats.fetched_bytes = 12'345'678'901;
  stats.waited = std::chrono::milliseconds(2'050);
  const std::string odd = "/a \"b\"\\c\nd/\xff";
  const MetricsText read(
      detail::process_metrics(stats, {.directory = odd, .budget_bytes = 1'000}, 42));
  EXPECT_EQ(read.value("shardwise_cache_hits_total"), 7);
  EXPECT_EQ(read.value("shardwise_cache_fetched_bytes_total"), 12'345'678'901);
  EXPECT_EQ(read.value("shardwise_cache_waited_seconds_total"), 2.05);
  EXPECT_EQ(read.value("shardwise_cache_budget_bytes"), 1'000);
  EXPECT_EQ(read.type("shardwise_cache_budget_bytes"), "gauge");
  // Labels are one printable line of UTF-8, even if the directory's name is not.
  EXPECT_EQ(read.labels("shardwise_cache_hits_total"),
            (MetricsText::Labels{{"directory", "/a \"b\"\\\\c\\nd/\\xff"}, {"pid", "42"}}));
}

TEST(CacheMetricsText, OfADirectory) {
  const std::vector<ShardCache::Entry> entries = {
      {.name = "a", .url = {}, .size_bytes = 10, .last_use_ns = 3'500'000'000, .in_use = true},
      {.name = "b", .url = {}, .size_bytes = 20, .last_use_ns = 2'000'000'001}};
  const MetricsText read(
      detail::directory_metrics(entries, {{.name = "c", .url = {}, .size_bytes = 40}}, "/cache"));
  EXPECT_EQ(read.value("shardwise_cache_shards"), 2);
  EXPECT_EQ(read.value("shardwise_cache_shard_bytes"), 30);
  EXPECT_EQ(read.value("shardwise_cache_shards_in_use"), 1);
  EXPECT_EQ(read.value("shardwise_cache_in_use_bytes"), 10);
  EXPECT_EQ(read.value("shardwise_cache_shards_coming"), 1);
  EXPECT_EQ(read.value("shardwise_cache_coming_bytes"), 40);
  EXPECT_EQ(read.value("shardwise_cache_oldest_use_timestamp_seconds"), 2.000000001);
  EXPECT_EQ(MetricsText(detail::directory_metrics({}, {}, "/cache"))
                .value("shardwise_cache_oldest_use_timestamp_seconds"),
            0);
}

/// Shows that the parser of these tests rejects malformed text.
TEST(CacheMetricsText, TheReaderIsStrict) {
  const std::string head = "# HELP x_total What.\n# TYPE x_total counter\n";
  EXPECT_EQ(MetricsText(head + "x_total{a=\"1\"} 5\n").value("x_total"), 5);
  for (const std::string bad :
       {"x_total 5", "x_total  5\n", "x_total{a=\"1} 5\n", "x_total{a=\"\\x\"} 5\n",
        "x_total 5\nx_total 5\n", "y_total 5\n", "x_total five\n", "\n"}) {
    EXPECT_THROW(MetricsText{head + bad}, std::invalid_argument) << bad;
  }
  EXPECT_THROW(MetricsText{head}, std::invalid_argument) << "no sample";
  EXPECT_THROW(MetricsText{"# HELP x What.\n# TYPE x counter\nx 5\n"}, std::invalid_argument);
}

class CacheMetricsTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kShardBytes = 10'000;

  CacheMetricsTest() { server_.serve("/0.tar", {.body = test::some_bytes(kShardBytes)}); }
  ShardCache::Options options() const {
    return {.directory = dir_ / "cache",
            .fetchers = std::make_shared<const Fetchers>(test::quick_options()),
            .metrics_file = file()};
  }
  std::string file() const { return dir_ / "shardwise.prom"; }
  MetricsText written() const { return MetricsText(test::read_file(file())); }
  CacheRequest request() const {
    return {.source = {.url = server_.url("/0.tar"), .size_bytes = kShardBytes}};
  }

  TempDir dir_;
  test::TestHttpServer server_;
};

TEST_F(CacheMetricsTest, AreWrittenAtOpenAndWhenTheCacheIsClosed) {
  auto cache = ShardCache::open(options());
  EXPECT_EQ(written().value("shardwise_cache_misses_total"), 0);
  static_cast<void>(CacheAccess::get(*cache, request()));
  static_cast<void>(CacheAccess::get(*cache, request()));
  EXPECT_EQ(MetricsText(cache->metrics()).value("shardwise_cache_hits_total"), 1);
  EXPECT_EQ(MetricsText(cache->directory_metrics()).value("shardwise_cache_shards"), 1);
  cache.reset();
  const MetricsText last = written();
  EXPECT_EQ(last.value("shardwise_cache_hits_total"), 1);
  EXPECT_EQ(last.value("shardwise_cache_misses_total"), 1);
  EXPECT_EQ(last.value("shardwise_cache_fetched_shards_total"), 1);
  EXPECT_EQ(last.value("shardwise_cache_fetched_bytes_total"), kShardBytes);
  EXPECT_EQ(last.labels("shardwise_cache_hits_total").at("pid"), std::to_string(::getpid()));
  EXPECT_EQ(dir_.list(), (std::vector<std::string>{"cache", "shardwise.prom"}))
      << "no temporary file stays";
}

TEST_F(CacheMetricsTest, AForkedChildLeavesThemAlone) {
  auto cache = ShardCache::open(options());
  static_cast<void>(CacheAccess::get(*cache, request()));
  const std::string before = test::read_file(file());
  const pid_t child = ::fork();
  if (child == 0) {
    cache.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(test::read_file(file()), before);
}

TEST_F(CacheMetricsTest, AFileThatCannotBeWrittenIsAnErrorAtOnce) {
  ShardCache::Options wrong = options();
  wrong.metrics_file = dir_ / "no/such/folder.prom";
  EXPECT_THAT(test::error_text([&] { ShardCache::open(wrong); }), HasSubstr("no/such/folder.prom"));
}

}  // namespace
}  // namespace shardwise
