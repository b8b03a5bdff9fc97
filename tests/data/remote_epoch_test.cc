// Epochs over remote shards with a small cache: which shards are fetched, evicted, and read
// uncached.
#include <atomic>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <thread>

#include "base/text.h"
#include "data/read_frontier.h"
#include "data/remote_dataset.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/order/sampler.h"
#include "support/process.h"
#include "support/sample_pipeline.h"

namespace shardwise {
namespace {

using test::kSamples;
using test::kShards;
using test::RemoteDatasetTest;
using ::testing::HasSubstr;

/// The results of an epoch that uses all shards all the time, with a cache that has room for few of
/// them.
struct SmallCacheRun {
  std::uint64_t most_bytes = 0;  // largest size of the cache's folder
  ShardCache::Stats stats;
};
SmallCacheRun run_in_small_cache(const Dataset& data, const std::string& folder) {
  const auto sampler = make_sampler(data, {.seed = 3, .kind = Chunked{5, 200}});
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = 1});
  EXPECT_TRUE(prefetcher.is_active());
  SmallCacheRun run;
  std::uint64_t samples = 0;
  while (const auto number = sampler->next()) {
    const Sample sample = data[*number];
    EXPECT_EQ(sample["txt"], "text " + std::string(sample.key()));
    prefetcher.reached(++samples);
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/shards")) {
      std::error_code gone;
      const std::string name = entry.path().filename();
      const auto size = entry.file_size(gone);
      if (!gone && name.find(".tar") != std::string::npos) bytes += size;
    }
    run.most_bytes = std::max(run.most_bytes, bytes);
  }
  EXPECT_EQ(samples, data.size());
  run.stats = data.cache()->stats();
  return run;
}

TEST_F(RemoteDatasetTest, AnEpochWithLessBringsTheCacheDownToItsBudget) {
  build_index(index_path(), serve(), {.remote = remote(cache())});
  ASSERT_EQ(cache()->used_bytes(), kShards * shard_bytes_);
  const std::uint64_t budget = kShards / 2 * shard_bytes_;
  const auto data =
      Dataset::open(index_path(), {.cache = cache(budget, std::chrono::milliseconds(5))});
  const SmallCacheRun run = run_in_small_cache(data, dir_ / "cache");
  // Shards outside the budget do not count, as long as they are mapped.
  EXPECT_EQ(data.cache()->entries().size() * shard_bytes_, budget);
  EXPECT_GE(run.stats.evicted, std::uint64_t{kShards - kShards / 2});
}

// Fault under test: tests/faults.md 16.
TEST_F(RemoteDatasetTest, WhereShardsInUseDoNotFitOneLiesBesideTheBudgetAndTheRestIsReadPast) {
  build_index(index_path(), serve(), {.remote = remote()});
  for (const std::uint64_t budget : {4 * shard_bytes_, shard_bytes_}) {
    const int before = total_gets();
    const auto data = Dataset::open(index_path(), {.cache = cache(budget)});
    const SmallCacheRun run = run_in_small_cache(data, dir_ / "cache");
    EXPECT_LE(run.most_bytes, budget + shard_bytes_);
    EXPECT_GE(run.most_bytes, budget);
    EXPECT_LE(run.stats.fetched, std::uint64_t{kShards}) << "no more than one for each use";
    EXPECT_LE(total_gets() - before, kShards * (kSamples + 2)) << "no sample is asked for twice";
    cache()->prune(0);
  }
}

// Fault under test: tests/faults.md 16.
TEST_F(RemoteDatasetTest, WhatCannotBeReadPastTheCacheTakesHalfTheBudgetBesideIt) {
  for (const bool is_compressed : {true, false}) {
    const auto urls = serve(is_compressed ? Compression::kGzip : Compression::kNone);
    for (int shard = 0; shard < kShards && !is_compressed; ++shard) {
      const std::string path = "/" + std::to_string(shard) + ".tar";
      server_.serve(path, {.body = tar_body(shard), .has_ranges = false});
    }
    build_index(index_path(), urls, {.remote = remote()});
    const std::uint64_t budget = 8 * shard_bytes_;
    const auto data = Dataset::open(index_path(), {.cache = cache(budget)});
    const SmallCacheRun run = run_in_small_cache(data, dir_ / "cache");
    // In addition to the budget and half of it: one shard that is being fetched, and two compressed
    // originals.
    EXPECT_LE(run.most_bytes, budget + budget / 2 + 2 * shard_bytes_);
    EXPECT_GT(run.most_bytes, budget);
  }
}

// Fault under test: tests/faults.md 16.
TEST_F(RemoteDatasetTest, AShardThatIsReadPastTheCacheIsMappedOnceItHasCome) {
  build_index(index_path(), serve(), {.remote = remote()});
  const auto small = cache(shard_bytes_, std::chrono::milliseconds(5));
  const auto data = Dataset::open(index_path(), {.cache = small});
  const Sample inside = data[0], beside = data[kSamples];
  std::optional<Sample> past = data[2 * kSamples];
  EXPECT_EQ((*past)["txt"], "text s2000");
  EXPECT_EQ(server_.gets("/2.tar"), 1 + 2) << "for the index; its first block, and one sample";
  const Dataset other = Dataset::open(index_path(), {.cache = cache()});
  EXPECT_EQ(other[2 * kSamples].copy("txt"), "text s2000");
  const int gets = server_.gets("/2.tar");
  EXPECT_EQ(data[2 * kSamples + 1].copy("txt"), "text s2001");
  EXPECT_EQ(server_.gets("/2.tar"), gets + 1) << "somebody holds a sample of it still";
  past.reset();
  EXPECT_EQ(data[2 * kSamples + 2].copy("txt"), "text s2002");
  EXPECT_EQ(server_.gets("/2.tar"), gets + 1);
  EXPECT_EQ(small->stats().fetched, 2U);
}

TEST_F(RemoteDatasetTest, BatchesThatSpanShardsAndAreHeldDoNotStallEviction) {
  build_index(index_path(), serve(), {.remote = remote()});
  // If the reader waited for a shard of its own batch, it would wait for an hour.
  const auto data =
      Dataset::open(index_path(), {.cache = cache(3 * shard_bytes_, std::chrono::hours(1))});
  const auto sampler = make_sampler(data, {.kind = Sequential{}});
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = 0});
  std::vector<Sample> held;  // two batches, each of three or four shards
  std::uint64_t samples = 0;
  while (const auto number = sampler->next()) {
    held.push_back(data[*number]);
    ASSERT_EQ(held.back()["txt"], "text " + std::string(held.back().key()));
    if (++samples % 120 != 0) continue;
    if (samples > 120) held.erase(held.begin(), held.begin() + 120);
    prefetcher.reached(samples);
    EXPECT_LE(data.cache()->used_bytes(), (3 + 6) * shard_bytes_);
  }
  EXPECT_EQ(samples, data.size());
  held.clear();
  prefetcher.reached(samples);
  EXPECT_LE(data.cache()->used_bytes(), 3 * shard_bytes_) << "what is let go leaves";
  EXPECT_EQ(data.cache()->stats().fetched, std::uint64_t{kShards});
}

// Shards that an unfinished batch has read may be evicted, although the batch was not delivered
// yet.
TEST_F(RemoteDatasetTest, WhatABatchHasReadLeavesAtOnceAndIsNotWaitedFor) {
  build_index(index_path(), serve(), {.remote = remote()});
  const auto data =
      Dataset::open(index_path(), {.cache = cache(2 * shard_bytes_, std::chrono::minutes(10))});
  const auto sampler = make_sampler(data, {.kind = Sequential{}});
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = 0});
  detail::ReadFrontier frontier([&](std::uint64_t num_read) { prefetcher.note_read(num_read); });
  std::uint64_t samples = 0;
  while (samples < data.size()) {
    constexpr std::uint64_t kBatch = 250;  // samples of five shards
    auto batch = frontier.begin(samples, samples + kBatch);
    for (std::uint64_t i = 0; i < kBatch; ++i) {
      batch.reach(samples + i);
      const std::uint64_t number = *sampler->next();
      const Sample sample = data[number];
      ASSERT_EQ(sample["txt"], "text " + std::string(sample.key()));
      ASSERT_LE(data.cache()->used_bytes(), 2 * shard_bytes_) << number;
    }
    samples += kBatch;
    prefetcher.reached(samples);
  }
  EXPECT_EQ(data.cache()->stats().fetched, std::uint64_t{kShards});
  EXPECT_EQ(data.cache()->stats().bypassed, 0U);
}

/// Loads an epoch with the given prefetching. Returns the number of bytes fetched.
std::uint64_t load_epoch(const Dataset& data, Sampler& sampler, ShardPrefetcher* prefetcher,
                         unsigned threads, std::vector<bool>& seen) {
  const std::uint64_t before = data.cache()->stats().fetched_bytes;
  auto loader = test::sample_pipeline(
      data, [&] { return sampler.next(); },
      [](const Sample& sample) {
        std::string text(sample["txt"]);
        if (text != "text " + std::string(sample.key())) throw std::runtime_error("wrong bytes");
        return sample.index();
      },
      {.threads = threads});
  std::uint64_t delivered = 0;
  while (const auto i = loader.next()) {
    seen.at(*i) = true;
    if (prefetcher != nullptr) prefetcher->reached(++delivered);
  }
  return data.cache()->stats().fetched_bytes - before;
}

struct PlanCase {
  const char* name;
  OrderKind kind;
  unsigned loader_threads;
  unsigned prefetch_threads;
};

class PlannedEpochTest : public RemoteDatasetTest,
                         public ::testing::WithParamInterface<PlanCase> {};

TEST_P(PlannedEpochTest, FetchesWhatThePlanSaysAndNoMoreThanLru) {
  const PlanCase& how = GetParam();
  build_index(index_path(), serve(), {.remote = remote()});
  const std::uint64_t budget = kShards / 5 * shard_bytes_;  // 20 % of the data
  const auto data = Dataset::open(index_path(), {.cache = cache(budget, std::chrono::seconds(30))});
  const auto sampler = make_sampler(data, {.seed = 3, .kind = how.kind});
  constexpr std::uint64_t kEpochs = 3;
  const FetchPlan plan = plan_fetches(*sampler, FetchPlan::Shards::of(data),
                                      {.nodes = 1, .cache_bytes = budget, .epochs = kEpochs});
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = how.prefetch_threads});
  ASSERT_TRUE(prefetcher.is_active());
  std::uint64_t planned = 0, planned_lru = 0, fetched = 0;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    sampler->set_epoch(epoch);
    prefetcher.begin_epoch(*sampler);
    std::vector<bool> seen(data.size());
    fetched += load_epoch(data, *sampler, &prefetcher, how.loader_threads, seen);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<long>(data.size()));
    EXPECT_LE(data.cache()->used_bytes(), budget);
    planned += plan.total(epoch).next_use.bytes_fetched;
    planned_lru += plan.total(epoch).lru.bytes_fetched;
    if (how.prefetch_threads == 0) {
      EXPECT_EQ(fetched, planned) << "epoch " << epoch;
    } else {
      // Shards for the next epoch are fetched before this one ends. Allow one shard more or less,
      // because on a busy machine reading and fetching threads may overtake each other.
      EXPECT_GE(fetched + budget + shard_bytes_, planned) << "epoch " << epoch;
      EXPECT_LE(fetched, planned + budget + shard_bytes_) << "epoch " << epoch;
    }
  }
  EXPECT_LT(planned, planned_lru);
  EXPECT_EQ(data.cache()->stats().bypassed, 0u);
}
INSTANTIATE_TEST_SUITE_P(Ways, PlannedEpochTest,
                         ::testing::Values(PlanCase{"OneThread", Sharded{1}, 0, 0},
                                           PlanCase{"Loader", Sharded{1}, 2, 0},
                                           PlanCase{"LoaderAndPrefetcher", Sharded{1}, 2, 2},
                                           PlanCase{"Window", Sharded{3}, 2, 2},
                                           PlanCase{"ChunkedWindow", Chunked{kSamples, 2}, 2, 2}),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_F(RemoteDatasetTest, ACacheTooSmallForAWindowIsNoticedBeforehand) {
  build_index(index_path(), serve(), {.remote = remote()});
  const auto warning = [&](std::uint64_t num_shards, std::uint64_t window) {
    const auto data = Dataset::open(
        index_path(), {.cache = cache(num_shards * shard_bytes_, std::chrono::seconds(30))});
    return small_cache_warning(data, *make_sampler(data, {.seed = 1, .kind = Sharded{window}}),
                               {.first = 0, .count = 1});
  };
  EXPECT_EQ(warning(4, 4), std::nullopt);
  EXPECT_EQ(warning(1, 1), std::nullopt);
  EXPECT_THAT(warning(3, 4).value(),
              testing::AllOf(HasSubstr("needs up to"),
                             HasSubstr("(" + human_count(4 * shard_bytes_) + " bytes)"),
                             HasSubstr("smaller window"), HasSubstr("larger cache")));
  // Each of several ranks needs the shards of its own window. A window of one shard cannot be made
  // smaller, so the warning only suggests a larger cache.
  const auto shared =
      Dataset::open(index_path(), {.cache = cache(2 * shard_bytes_, std::chrono::seconds(30))});
  const auto ranks =
      make_sampler(shared, {.seed = 1, .kind = Sharded{1}, .streams = 3}, {.world_size = 3});
  EXPECT_THAT(
      small_cache_warning(shared, *ranks, {.first = 0, .count = 3}).value(),
      testing::AllOf(HasSubstr("(" + human_count(3 * shard_bytes_) + " bytes)"),
                     HasSubstr("fetched again"), testing::EndsWith("; choose a larger cache")));
  const auto data = Dataset::open(index_path());
  EXPECT_EQ(small_cache_warning(data, *make_sampler(data, {.kind = Sharded{100}}), {}),
            std::nullopt)
      << "there is no cache";
}

TEST_F(RemoteDatasetTest, ACacheTooSmallForSingleDrawsIsNoticedBeforehand) {
  build_index(index_path(), serve(), {.remote = remote()});
  const auto warning = [&](std::uint64_t num_shards, const OrderKind& kind,
                           std::uint64_t last_sample = 0) {
    auto data = Dataset::open(
        index_path(), {.cache = cache(num_shards * shard_bytes_, std::chrono::seconds(30))});
    if (last_sample != 0) {
      data = data.where("sample <= " + std::to_string(last_sample));
    }
    return small_cache_warning(data, *make_sampler(data, {.seed = 1, .kind = kind}),
                               {.first = 0, .count = 1});
  };
  EXPECT_THAT(warning(3, Resampled{}).value(),
              testing::AllOf(HasSubstr("any shard"),
                             HasSubstr("(" + human_count(kShards * shard_bytes_) + " bytes)"),
                             HasSubstr("order `sharded`"), HasSubstr("at most 3 shards")));
  EXPECT_EQ(warning(3, Sharded{3}), std::nullopt) << "the advice holds";
  EXPECT_EQ(warning(kShards, Resampled{}), std::nullopt) << "it holds all";
  EXPECT_EQ(warning(3, Resampled{.unit = Resampled::Unit::kShard}), std::nullopt);
  EXPECT_EQ(warning(1, Resampled{}, kSamples - 1), std::nullopt) << "a view of one shard";
  EXPECT_NE(warning(1, Resampled{}, kSamples), std::nullopt) << "a view of two shards";
}

/// A barrier for processes, like the one after each step of a data-parallel run.
struct Meeting {
  std::atomic<std::uint64_t> arrived{0};
};

TEST_F(RemoteDatasetTest, FourRanksInStepShareWhatIsFetched) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "needs a build without ThreadSanitizer; skipped because it starts no threads in "
                  "a forked child";
#endif
  constexpr std::uint64_t kRanks = 4, kBatch = 10;
  build_index(index_path(), serve(), {.remote = remote()});
  const std::uint64_t budget = kShards / 5 * shard_bytes_;
  const Order order{.seed = 5, .kind = Sharded{.window = 1}};
  FetchPlan plan;
  {
    const auto data = Dataset::open(index_path());
    plan =
        plan_fetches(*make_sampler(data, order, {.world_size = kRanks}),
                     FetchPlan::Shards::of(data), {.nodes = 1, .cache_bytes = budget, .epochs = 2});
  }
  const test::Shared<Meeting> meeting;
  const int before = total_gets();
  std::deque<test::Child> ranks;
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank]() -> std::string {
      const auto data =
          Dataset::open(index_path(), {.cache = cache(budget, std::chrono::milliseconds(50))});
      const auto sampler =
          make_sampler(data, order, {.rank = rank, .world_size = kRanks, .batch_size = kBatch});
      ShardPrefetcher prefetcher(data, *sampler,
                                 {.fetch_threads = 1, .node = {.first = 0, .count = kRanks}});
      std::uint64_t steps = 0;
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        sampler->set_epoch(epoch);
        prefetcher.begin_epoch(*sampler);
        for (std::uint64_t left = sampler->steps(); left > 0; --left) {
          for (std::uint64_t i = 0; i < kBatch; ++i) {
            const auto number = sampler->next();
            if (!number) break;
            const Sample sample = data[*number];
            if (sample["txt"] != "text " + std::string(sample.key())) return "wrong bytes";
          }
          prefetcher.reached(sampler->position());
          ++meeting->arrived;
          ++steps;
          while (meeting->arrived < steps * kRanks) std::this_thread::yield();
        }
      }
      return "";
    });
  }
  for (test::Child& rank : ranks) EXPECT_EQ(rank.wait(), "");
  const std::uint64_t fetched = static_cast<std::uint64_t>(total_gets() - before) * shard_bytes_;
  const std::uint64_t planned =
      plan.total(0).next_use.bytes_fetched + plan.total(1).next_use.bytes_fetched;
  std::printf("%llu bytes fetched, %llu planned\n", static_cast<unsigned long long>(fetched),
              static_cast<unsigned long long>(planned));
  // Within a step the ranks may drift apart. Near the end of an epoch, shards of the next one are
  // fetched.
  EXPECT_GE(fetched + budget, planned);
  EXPECT_LE(fetched, planned + budget + planned / 4);
}

}  // namespace
}  // namespace shardwise
