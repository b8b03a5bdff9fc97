#include "shardwise/data/fetch_plan.h"

#include <filesystem>
#include <iterator>

#include "data/cache_simulation.h"
#include "data/shards.h"
#include "order/shard_use.h"
#include "shardwise/base/error.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/order/sampler.h"

namespace shardwise {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Sampler> sampler_of(const FetchPlan::Shards& shards, const Order& order,
                                    const RankOptions& ranks = {}) {
  return make_sampler(
      SampleSet(shards.starts.back())
          .with_shards(std::make_shared<const std::vector<std::uint64_t>>(shards.starts)),
      order, ranks);
}

FetchPlan plan(const FetchPlan::Shards& shards, const Order& order, const RankOptions& ranks,
               const FetchPlan::Options& options) {
  return plan_fetches(*sampler_of(shards, order, ranks), shards, options);
}

TEST(FetchPlanTest, RanksThatShareAStreamOfSmallShardsAreWarned) {
  const FetchPlan::Shards small = FetchPlan::Shards::alike(100'000, 10, 1000);
  const FetchPlan::Shards large = FetchPlan::Shards::alike(1000, 1000, 1000);
  const auto warning = [](const FetchPlan::Shards& shards, const Order& order,
                          std::uint64_t world_size) {
    return shared_stream_warning(*sampler_of(shards, order, {.world_size = world_size}),
                                 shards.sizes_bytes.size());
  };
  EXPECT_THAT(warning(small, {}, 64).value_or(""), HasSubstr("streams"));
  EXPECT_THAT(warning(small, {.kind = Sharded{}}, 64).value_or(""), HasSubstr("64"));
  EXPECT_THAT(warning(large, {}, 1000).value_or(""), HasSubstr("streams"));
  EXPECT_EQ(warning(small, {.streams = 64}, 64), std::nullopt);
  EXPECT_EQ(warning(small, {}, 1), std::nullopt);
  EXPECT_EQ(warning(large, {}, 64), std::nullopt) << "a rank reads 16 samples of an open shard";
  EXPECT_EQ(warning(small, {.kind = Chunked{1, 1}}, 64), std::nullopt) << "streams do not help";
  EXPECT_EQ(warning(small, {.kind = Resampled{}}, 64), std::nullopt);
  EXPECT_EQ(warning(FetchPlan::Shards::alike(100, 10, 1000), {}, 64), std::nullopt);
}

TEST(FetchPlanTest, ACacheThatHoldsAllFetchesAllInTheFirstEpochAndNothingLater) {
  const FetchPlan::Shards shards = FetchPlan::Shards::alike(20, 100, 1000);
  const auto sampler = sampler_of(shards, {.kind = Chunked{30, 1}}, {.world_size = 4});
  sampler->set_epoch(5);
  const FetchPlan whole = plan_fetches(*sampler, shards, {.nodes = 2, .cache_bytes = 20'000});
  EXPECT_EQ(whole.first_epoch, 5u);
  EXPECT_EQ(whole.num_shards, 20u);
  EXPECT_EQ(whole.total_bytes, 20'000u);
  ASSERT_EQ(whole.kinds.size(), 1u) << "both nodes need every chunk";
  EXPECT_THAT(whole.kinds[0].nodes, ElementsAre(0, 1));
  EXPECT_EQ(whole.kinds[0].shards, 20u);
  EXPECT_EQ(whole.kinds[0].bytes, 20'000u);
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    const FetchPlan::NodeEpoch both = whole.total(epoch);
    EXPECT_EQ(both.shards, 20u);
    EXPECT_EQ(both.bytes, 20'000u);
    EXPECT_EQ(both.lru.bytes_fetched, epoch == 0 ? 40'000u : 0u);
    EXPECT_EQ(both.lru, both.next_use);
    EXPECT_EQ(both.lru.peak_bytes, 20'000u) << "of a node";
  }
  EXPECT_EQ(whole.bytes_for_once(), 20'000u);
  EXPECT_LE(whole.bytes_for_once_an_epoch(), 20'000u);
}

TEST(FetchPlanTest, TheBudgetsThatItNamesAreExact) {
  const FetchPlan::Shards shards = FetchPlan::Shards::alike(50, 64, 10);
  const Order order{.kind = Chunked{40, 2}};
  const RankOptions ranks{.world_size = 2};
  const FetchPlan first = plan(shards, order, ranks, {.nodes = 1, .cache_bytes = 1});
  const std::uint64_t budget = first.bytes_for_once_an_epoch();
  const FetchPlan enough = plan(shards, order, ranks, {.nodes = 1, .cache_bytes = budget});
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_LE(enough.total(epoch).next_use.fetches, 50u);
    EXPECT_EQ(enough.total(epoch).next_use.bypasses, 0u);
  }
  EXPECT_EQ(enough.total(0).next_use.fetches, 50u);
  const FetchPlan less = plan(shards, order, ranks, {.nodes = 1, .cache_bytes = budget - 1});
  EXPECT_GT(less.total(0).next_use.fetches + less.total(1).next_use.fetches +
                less.total(2).next_use.fetches,
            enough.total(0).next_use.fetches + enough.total(1).next_use.fetches +
                enough.total(2).next_use.fetches);
}

TEST(FetchPlanTest, NextUseKeepsShardsOverTheEndOfAnEpoch) {
  const FetchPlan::Shards shards = FetchPlan::Shards::alike(40, 100, 1000);
  const FetchPlan half =
      plan(shards, {.kind = Sequential{}}, {}, {.cache_bytes = 20'000, .epochs = 4});
  for (std::uint64_t epoch = 1; epoch < 4; ++epoch) {
    EXPECT_EQ(half.total(epoch).lru.fetches, 40u) << "LRU keeps just what is needed last";
    EXPECT_LE(half.total(epoch).next_use.fetches, 21u);
  }
  EXPECT_EQ(half.bytes_for_once_an_epoch(), 1000u) << "one shard after another";
  EXPECT_EQ(half.bytes_for_once(), 40'000u);
}

TEST(FetchPlanTest, StreamsGiveEachNodeItsOwnShards) {
  const FetchPlan::Shards shards = FetchPlan::Shards::alike(64, 100, 1000);
  Order order{.kind = Sharded{1}};
  const RankOptions ranks{.world_size = 8};
  const FetchPlan shared = plan(shards, order, ranks, {.nodes = 4, .cache_bytes = 5000});
  EXPECT_EQ(shared.kinds.size(), 1u);
  EXPECT_EQ(shared.total(0).next_use.bytes_fetched, 4 * 64'000u);
  order.streams = 8;
  const FetchPlan apart = plan(shards, order, ranks, {.nodes = 4, .cache_bytes = 5000});
  EXPECT_EQ(apart.kinds.size(), 4u);
  EXPECT_EQ(apart.total(0).next_use.bytes_fetched, 64'000u);
  EXPECT_EQ(apart.total(0).bytes, 16'000u);
  for (std::uint64_t node = 0; node < 4; ++node) {
    EXPECT_THAT(apart.of_node(node).nodes, ElementsAre(node));
    EXPECT_EQ(apart.of_node(node).epochs[0].shards, 16u);
  }
}

TEST(FetchPlanTest, SizesAreThoseOfTheIndex) {
  const test::Shards files(3, 20);
  const Dataset data = Dataset::open(files.index_path());
  const FetchPlan::Shards shards = FetchPlan::Shards::of(data);
  EXPECT_THAT(shards.starts, ElementsAre(0, 20, 40, 60));
  ASSERT_EQ(shards.sizes_bytes.size(), 3u);
  for (std::uint64_t shard = 0; shard < 3; ++shard) {
    EXPECT_EQ(shards.sizes_bytes[shard], data.index().shard(shard).expanded_bytes);
  }
  const FetchPlan all = plan(shards, {.kind = Chunked{7, 1}}, {}, {.cache_bytes = 1 << 20});
  EXPECT_EQ(all.total(0).lru.bytes_fetched, all.total_bytes);
  const Dataset view = data.subset(std::vector<std::uint64_t>{3, 4, 45});
  const FetchPlan::Shards of_view = FetchPlan::Shards::of(view);
  EXPECT_THAT(of_view.starts, ElementsAre(0, 2, 2, 3));
  EXPECT_EQ(plan(of_view, {}, {}, {.cache_bytes = 1 << 20}).total(0).shards, 2u);
}

TEST(ShardPrefetcherTest, OneThatHasNothingToFetchStartsNoThreads) {
  const test::Shards files(1, 20);
  const Dataset data = Dataset::open(files.index_path());
  const auto sampler = make_sampler(data, {}, {});
  const auto num_threads = [] {
    const std::filesystem::directory_iterator threads("/proc/self/task");
    return std::distance(begin(threads), end(threads));
  };
  const auto before = num_threads();
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = 3});
  EXPECT_FALSE(prefetcher.is_active());
  prefetcher.reached(1);
  prefetcher.reached(2);
  EXPECT_EQ(num_threads(), before);
}

TEST(FetchPlanTest, TheFirstEpochIsPlannedFromWhereTheSamplerBegan) {
  const FetchPlan::Shards shards = FetchPlan::Shards::alike(20, 100, 1000);
  const auto sampler = sampler_of(shards, {.kind = Sharded{1}}, {.world_size = 4});
  sampler->resume(sampler->token_after(300));  // 12 of 20 shards remain
  const FetchPlan rest =
      plan_fetches(*sampler, shards, {.nodes = 1, .cache_bytes = 1000, .epochs = 2});
  EXPECT_EQ(rest.total(0).shards, 8u);
  EXPECT_EQ(rest.total(1).shards, 20u);
}

TEST(FetchPlanTest, PeakBytesAreThoseOfTheUsesThatOverlap) {
  const std::vector<std::uint64_t> sizes{1, 10, 100, 1000};
  EXPECT_EQ(peak_bytes_in_use({}, sizes), 0u);
  EpochSchedule epoch;
  epoch.num_slots = 100;
  epoch.uses = {{0, 0, 10}, {1, 0, 5}, {2, 5, 30}, {0, 12, 20}, {3, 30, 31}, {1, 31, 100}};
  EXPECT_EQ(peak_bytes_in_use(epoch, sizes), 1000u);
  epoch.uses.pop_back();
  epoch.uses.back() = {3, 29, 31};
  EXPECT_EQ(peak_bytes_in_use(epoch, sizes), 1100u);
}

TEST(FetchPlanTest, WhatCannotBePlannedSaysWhy) {
  const FetchPlan::Shards shards = FetchPlan::Shards::alike(4, 10, 100);
  const auto text_of = [&](const Order& order, const RankOptions& ranks,
                           const FetchPlan::Options& options) {
    try {
      plan(shards, order, ranks, options);
    } catch (const Error& e) {
      return std::string(error_code_name(e.code())) + ": " + e.what();
    }
    return std::string("planned");
  };
  EXPECT_THAT(text_of({}, {.world_size = 12}, {.nodes = 5}),
              AllOf(HasSubstr("InvalidArgument"), HasSubstr("12 ranks"), HasSubstr("by 5 nodes"),
                    HasSubstr("1, 2, 3, 4, 6, 12 nodes")));
  EXPECT_THAT(text_of({}, {.world_size = 12}, {.nodes = 0}),
              AllOf(HasSubstr("12 ranks"), HasSubstr("by 0 nodes")));
  EXPECT_THAT(text_of({}, {}, {.epochs = 0}), HasSubstr("the plan has 0 epochs"));
  const CancelToken::Flag stop{true};
  EXPECT_THAT(text_of({}, {}, {.cancel = &stop}), HasSubstr("Cancelled"));
  const std::string unknown = text_of({.kind = Resampled{}}, {}, {});
  EXPECT_THAT(unknown, HasSubstr("Unsupported: cannot plan fetches"));
  EXPECT_THAT(unknown, HasSubstr("the resampled sampler"));
  EXPECT_THAT(unknown, HasSubstr("(400 bytes)"));
  const FetchPlan::Shards wrong = {{0, 10}, {1, 2}};
  EXPECT_THROW(plan_fetches(*sampler_of(shards, {}), wrong, {}), InvalidArgument);
  EXPECT_THROW(FetchPlan::Shards::alike(std::uint64_t{1} << 40, std::uint64_t{1} << 40, 1),
               InvalidArgument);
}

TEST(FetchPlanTest, OfManyKindsOfNodesSomeAreSimulated) {
  const FetchPlan::Shards shards = FetchPlan::Shards::alike(64, 100, 1000);
  const Order order{.kind = Sharded{1}, .streams = 8};
  const RankOptions ranks{.world_size = 8};
  const FetchPlan::Options all{.nodes = 8, .cache_bytes = 5000};
  FetchPlan::Options some = all;
  some.max_simulated_uses = 110;  // the plan has about 3 * (64 + 7) uses
  const FetchPlan exact = plan(shards, order, ranks, all);
  const FetchPlan fewer = plan(shards, order, ranks, some);
  EXPECT_EQ(exact.num_not_simulated(), 0u);
  EXPECT_EQ(fewer.num_not_simulated(), 4u);
  for (std::uint64_t node = 0; node < 8; ++node) {
    EXPECT_EQ(fewer.of_node(node).counts_of, node / 2 * 2);
    EXPECT_EQ(fewer.of_node(node).epochs[0].lru, exact.of_node(node / 2 * 2).epochs[0].lru);
    EXPECT_EQ(fewer.of_node(node).bytes_for_once, exact.of_node(node).bytes_for_once);
  }
  some.max_simulated_uses = 0;
  EXPECT_EQ(plan(shards, order, ranks, some).num_not_simulated(), 7u) << "at least one is";
}

class LargeFetchPlanTest : public testing::TestWithParam<std::uint64_t> {};

// With --thorough, the plan is as large as the largest known runs: 10^8 samples, 10^5 shards, 1,024
// ranks on 128 nodes.
TEST_P(LargeFetchPlanTest, FitsTheMachineThatPlans) {
  const auto count = static_cast<std::uint64_t>(test::repeats(10'000, 100'000));
  FetchPlan::Shards shards = FetchPlan::Shards::alike(count, 1003, 256 << 20);
  const Order order{.kind = Chunked{1000, 1}, .streams = GetParam()};
  const FetchPlan large = plan(shards, order, {.world_size = 1024},
                               {.nodes = 128, .cache_bytes = std::uint64_t{2} << 40});
  EXPECT_EQ(large.total_bytes, count << 28);
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    const FetchPlan::NodeEpoch all = large.total(epoch);
    EXPECT_LE(all.next_use.bytes_fetched, all.lru.bytes_fetched);
    EXPECT_LE(all.next_use.peak_bytes, std::uint64_t{2} << 40);
    EXPECT_EQ(all.next_use.bypasses, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, LargeFetchPlanTest, testing::Values(1, 128, 1024));

}  // namespace
}  // namespace shardwise
