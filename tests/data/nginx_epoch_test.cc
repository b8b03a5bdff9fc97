// Reads three epochs of shards from the distribution's nginx, through a cache with room for a fifth
// of them. The fetches must be those that plan_fetches() predicts.

#include <cstdio>
#include <filesystem>
#include <memory>

#include "shardwise/data/dataset.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/order/sampler.h"
#include "storage/fetch_support.h"
#include "storage/nginx.h"
#include "support/sample_pipeline.h"
#include "support/spawned.h"
#include "support/support.h"

namespace shardwise {
namespace {

constexpr int kShards = 30;
constexpr int kSamples = 40;
constexpr std::size_t kSampleBytes = 200'000;
constexpr std::uint64_t kEpochs = 3;

class NginxEpochTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto program = test::find_program("nginx");
    if (!program)
      GTEST_SKIP() << "needs nginx (the package nginx-light); skipped because it is not in PATH";
    std::filesystem::create_directories(dir_ / "www");
    const int port = test::free_port();
    for (int shard = 0; shard < kShards; ++shard) {
      test::TarBuilder tar;
      for (int i = shard * kSamples; i < (shard + 1) * kSamples; ++i) {
        tar.file(std::to_string(i) + ".bin", content(static_cast<std::uint64_t>(i)));
      }
      tar.end();
      shard_bytes_ = tar.size();
      const std::string name = std::to_string(shard) + ".tar";
      test::write_file(dir_ / ("www/" + name), tar.bytes());
      urls_.push_back("http://127.0.0.1:" + std::to_string(port) + "/" + name);
    }
    server_ =
        std::make_unique<test::Nginx>(*program, dir_, "access_log off;\n",
                                      "listen 127.0.0.1:" + std::to_string(port) + ";\n", port);
    build_index(dir_ / "x.idx", urls_, {.remote = make_remote_access()});
  }

  static std::string content(std::uint64_t sample) {
    return test::some_bytes(kSampleBytes, static_cast<std::uint32_t>(sample + 1));
  }

  void run(unsigned loader_threads, unsigned prefetch_threads) {
    const std::uint64_t budget = kShards * shard_bytes_ / 5;
    const test::TempDir cache_dir;
    const auto data = Dataset::open(
        dir_ / "x.idx",
        {.cache = ShardCache::open({.directory = cache_dir / "cache", .budget_bytes = budget})});
    const auto sampler = make_sampler(data, {.seed = 11, .kind = Sharded{.window = 1}});
    const FetchPlan plan = plan_fetches(*sampler, FetchPlan::Shards::of(data),
                                        {.nodes = 1, .cache_bytes = budget, .epochs = kEpochs});
    ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = prefetch_threads});
    std::uint64_t planned = 0, lru = 0;
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      sampler->set_epoch(epoch);
      prefetcher.begin_epoch(*sampler);
      auto loader = test::sample_pipeline(
          data, [&] { return sampler->next(); },
          [](const Sample& sample) {
            EXPECT_TRUE(test::same(sample["bin"], content(sample.index())));
            return sample.index();
          },
          {.threads = loader_threads});
      std::vector<bool> seen(data.size());
      std::uint64_t delivered = 0;
      while (const auto i = loader.next()) {
        EXPECT_FALSE(seen.at(*i));
        seen[*i] = true;
        prefetcher.reached(++delivered);
      }
      EXPECT_EQ(delivered, data.size());
      planned += plan.total(epoch).next_use.bytes_fetched;
      lru += plan.total(epoch).lru.bytes_fetched;
      const std::uint64_t fetched = data.cache()->stats().fetched_bytes;
      if (prefetch_threads == 0) {
        EXPECT_EQ(fetched, planned) << "epoch " << epoch;
      } else {  // before an epoch ends, shards for the next epoch are fetched
        EXPECT_GE(fetched + budget, planned) << "epoch " << epoch;
        EXPECT_LE(fetched, planned + budget + data.index().shard(0).size_bytes)
            << "epoch " << epoch;
      }
    }
    EXPECT_EQ(data.cache()->stats().bypassed, 0U);
    EXPECT_LE(planned, lru);
    std::printf("%llu epochs: next use %.1f MB, LRU %.1f MB: %.1f %% less\n",
                static_cast<unsigned long long>(kEpochs), static_cast<double>(planned) / 1e6,
                static_cast<double>(lru) / 1e6,
                100.0 * (1 - static_cast<double>(planned) / static_cast<double>(lru)));
  }

  test::TempDir dir_;
  std::unique_ptr<test::Nginx> server_;
  std::vector<std::string> urls_;
  std::uint64_t shard_bytes_ = 0;
};

TEST_F(NginxEpochTest, OnDemandExactlyWhatIsPlannedIsFetched) { run(2, 0); }

TEST_F(NginxEpochTest, AheadOfTheReaderToo) { run(2, 2); }

}  // namespace
}  // namespace shardwise
