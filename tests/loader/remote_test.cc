// The Loader over shards behind a server, through a shard cache and without one. No test ends by a
// timeout: the server hangs until the test releases it.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "data/cache_simulation.h"
#include "order/shard_schedule.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/loader/loader.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/chain.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::error_code;
using testing::HasSubstr;

constexpr int kShards = 6;
constexpr int kSamples = 10;

/// The way in which a loader gets its samples.
struct Way {
  bool has_cache;
  unsigned fetch_threads;  // for the cache
  unsigned threads;
};

std::ostream& operator<<(std::ostream& to, const Way& way) {
  if (way.has_cache) {
    to << "a cache, " << way.fetch_threads << " fetch_threads";
  } else {
    to << "single samples";
  }
  return to << ", " << way.threads << " threads";
}

const std::vector<Way>& all_ways() {
  static const std::vector<Way> ways = {{true, 0, 0}, {true, 0, 1},  {true, 0, 3},  {true, 2, 0},
                                        {true, 2, 3}, {false, 0, 0}, {false, 0, 1}, {false, 0, 3}};
  return ways;
}

Fetchers::Options patient_options() {
  Fetchers::Options options = test::quick_options();
  options.connect_timeout = std::chrono::hours(1);
  options.low_speed_time = std::chrono::hours(1);
  return options;
}

/// All samples are numbered through: sample i has the text "text <i>" and the number i.
class RemoteLoaderTest : public testing::Test {
 protected:
  RemoteLoaderTest()
      : hang_(std::make_shared<std::atomic<bool>>(false)),
        fetchers_(std::make_shared<const Fetchers>(patient_options())) {
    std::vector<std::string> urls;
    for (int shard = 0; shard < kShards; ++shard) {
      test::TarBuilder tar;
      for (int i = kSamples * shard; i < kSamples * (shard + 1); ++i) {
        const std::string key = std::to_string(1000 + i);
        tar.file(key + ".txt", "text " + std::to_string(i)).file(key + ".cls", std::to_string(i));
      }
      tar.end();
      shard_bytes_ = tar.size();
      server_.serve(path(shard), {.body = tar.bytes(), .hangs = shard == 3 ? hang_ : nullptr});
      urls.push_back(server_.url(path(shard)));
    }
    build_index(dir_ / "x.idx", urls, {.remote = make_remote_access(fetchers_)});
  }

  static std::string path(int shard) { return "/" + std::to_string(shard) + ".tar"; }

  Dataset open(bool has_cache, std::uint64_t budget_bytes = 1 << 30,
               std::chrono::milliseconds room_timeout = std::chrono::milliseconds(1)) {
    if (!has_cache) {
      return Dataset::open(dir_ / "x.idx",
                           {.access = Dataset::Access::kRange, .fetchers = fetchers_});
    }
    const std::string name = "cache" + std::to_string(num_caches_++);
    return Dataset::open(dir_ / "x.idx", {.cache = ShardCache::open({.directory = dir_ / name,
                                                                     .budget_bytes = budget_bytes,
                                                                     .room_timeout = room_timeout,
                                                                     .fetchers = fetchers_})});
  }
  static Loader::Options options(const Way& way) {
    return {.columns = {columns::text("txt"), columns::integer("cls")},
            .order = {.kind = Sequential{}},
            .batch_size = kSamples,
            .threads = way.threads,
            .fetch_threads = way.fetch_threads};
  }
  /// Waits until shard 3, which hangs, has been requested more than `before` times.
  void wait_for_request(int before) const {
    while (server_.gets(path(3)) == before) std::this_thread::yield();
  }

  test::TempDir dir_;
  std::shared_ptr<std::atomic<bool>> hang_;  // whether requests of shard 3 hang
  test::TestHttpServer server_;
  std::shared_ptr<const Fetchers> fetchers_;
  std::uint64_t shard_bytes_ = 0;
  int num_caches_ = 0;
};

/// Takes the rest of the epoch. Expects that each sample equals the server's.
std::size_t take_rest(Loader& loader) {
  std::size_t count = 0;
  while (const auto batch = loader.next()) {
    for (std::size_t i = 0; i < batch->size(); ++i, ++count) {
      const std::int64_t number = batch->samples()[i];
      EXPECT_EQ((*batch)["txt"].text(i), "text " + std::to_string(number));
      EXPECT_EQ((*batch)["cls"].values<std::int64_t>()[i], number);
    }
  }
  return count;
}

// If shards could only be evicted when a batch is complete, the loader would wait for an hour here.
TEST_F(RemoteLoaderTest, WhatABatchInTheMakingHasReadMayLeave) {
  for (const unsigned threads : {0u, 1u, 2u}) {
    const Dataset data = open(true, 3 * shard_bytes_, std::chrono::hours(1));
    Loader::Options how = options({true, 0, threads});
    how.batch_size = kShards * kSamples;
    Loader loader(data, how);
    EXPECT_EQ(take_rest(loader), std::size_t{kShards * kSamples});
    EXPECT_EQ(data.cache()->stats().fetched, std::uint64_t{kShards});
    EXPECT_EQ(data.cache()->stats().bypassed, 0U);
    // A thread that was preempted may still pin a shard that counts as evicted.
    EXPECT_LE(data.cache()->used_bytes(), (threads == 0 ? 3 : 4) * shard_bytes_);
  }
}

// The samples of a batch by length come from anywhere in a window. If a shard could not be evicted
// after all ranks have read it, the loader would wait for an hour for cache space.
class RemoteLengthsTest : public RemoteLoaderTest {
 protected:
  static constexpr std::uint64_t kWindow = 10;  // a window overlaps two shards at most
  static constexpr std::uint64_t kEpochs = 2;

  Dataset open_small() { return open(true, 3 * shard_bytes_, std::chrono::hours(1)); }
  static Loader::Options by_length(const Way& way, std::uint64_t seed) {
    Loader::Options how = options(way);
    how.order = {.seed = seed, .kind = Chunked{.chunk_size = 5, .window = 1}};
    how.batch_size = 3;
    how.by_length = Loader::ByLength{.field = "txt", .window = kWindow};
    how.prefetch = 40;
    return how;
  }
  /// Returns the planned counts of each epoch. Later epochs are simulated, too, since the next use
  /// of a shard may be there.
  static std::vector<CacheCounts> planned(const Dataset& data, const Order& order) {
    const auto sampler = make_sampler(data, order, {});
    std::vector<EpochSchedule> uses;
    for (std::uint64_t epoch = 0; epoch < kEpochs + 2; ++epoch) {
      sampler->set_epoch(epoch);
      const auto schedule = ShardSchedule::of(*sampler, data.shard_starts());
      uses.push_back(schedule->uses({0, 1}, kWindow).value());
    }
    return simulate_cache(uses, FetchPlan::Shards::of(data).sizes_bytes,
                          data.cache()->options().budget_bytes, Replacement::kNextUse);
  }
};

TEST_F(RemoteLengthsTest, WhatIsPlannedIsFetched) {
  std::uint64_t all_planned = 0;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    for (const Way& way : {Way{true, 0, 0}, Way{true, 0, 1}, Way{true, 2, 1}, Way{true, 2, 3}}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + testing::PrintToString(way));
      const Dataset data = open_small();
      const Loader::Options how = by_length(way, seed);
      const std::vector<CacheCounts> plan = planned(data, how.order);
      Loader loader(data, how);
      std::uint64_t least = 0;
      for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
        loader.set_epoch(epoch);
        EXPECT_EQ(take_rest(loader), std::size_t{kShards * kSamples});
        least += plan[epoch].fetches;
        ASSERT_EQ(plan[epoch].bypasses, 0U);
        const std::uint64_t fetched = data.cache()->stats().fetched;
        if (way.fetch_threads == 0) {
          EXPECT_EQ(fetched, least) << "epoch " << epoch;
        } else {
          // Shards of the next epoch may have been fetched already. A preempted thread may pin a
          // shard that counts as evicted, which is then not fetched again.
          EXPECT_LE(fetched, least + plan[epoch + 1].fetches) << "epoch " << epoch;
        }
      }
      EXPECT_EQ(data.cache()->stats().bypassed, 0U);
      all_planned += least;
    }
  }
  EXPECT_GT(all_planned, std::uint64_t{20 * kEpochs * kShards}) << "the cache was large enough";
}

// A sample that is held over is read in a later window, when its shard may have been evicted.
TEST_F(RemoteLengthsTest, SamplesThatAreHeldOverAreFetchedAgain) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    for (const Way& way : {Way{true, 0, 0}, Way{true, 0, 1}, Way{true, 2, 1}, Way{true, 2, 3}}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + testing::PrintToString(way));
      // The cache keeps the shards that the order needs, so the fetch waits for room_timeout.
      const Dataset data = open(true, 3 * shard_bytes_, std::chrono::milliseconds(1));
      Loader::Options how = by_length(way, seed);
      how.by_length.reset();
      how.by_group = Loader::ByGroup{.expression = "sample % 2", .window = kWindow};
      how.batch_size = 7;  // more than a group has in a window
      Loader loader(data, how);
      for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
        loader.set_epoch(epoch);
        EXPECT_EQ(take_rest(loader), std::size_t{kShards * kSamples});
      }
      // If the cache gets no room in time, the shard is fetched without being cached.
      const ShardCache::Stats stats = data.cache()->stats();
      EXPECT_GT(stats.fetched + stats.bypassed, std::uint64_t{kEpochs * kShards});
    }
  }
}

TEST_F(RemoteLengthsTest, WhatWasReadMayLeaveBeforeItIsHandedOut) {
  const Dataset data = open_small();
  const Loader::Options how = by_length({true, 0, 1}, 1);
  const std::uint64_t plan = planned(data, how.order)[0].fetches;
  ASSERT_GT(plan, std::uint64_t{kShards});
  Loader loader(data, how);
  loader.start();  // makes all batches of the epoch ahead
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (data.cache()->stats().fetched < plan && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(data.cache()->stats().fetched, plan);
  EXPECT_EQ(take_rest(loader), std::size_t{kShards * kSamples});
  EXPECT_EQ(data.cache()->stats().fetched, plan);
}

TEST_F(RemoteLoaderTest, TheWarningOfASmallCacheKnowsWindowsOfLengths) {
  const Dataset data = open(true, 3 * shard_bytes_);
  const auto warning = [&](const OrderKind& kind, std::uint64_t window) {
    Loader::Options how = options({true, 0, 0});
    how.order = {.seed = 1, .kind = kind};
    if (window != 0) how.by_length = Loader::ByLength{.field = "txt", .window = window};
    return Loader(data, how).cache_warning().value_or("none");
  };
  const auto uses = [&](std::uint64_t shards) {
    return "(" + human_count(shards * shard_bytes_) + " bytes), more than the cache";
  };
  EXPECT_EQ(warning(Sequential{}, 0), "none");
  EXPECT_EQ(warning(Sequential{}, 30), "none");
  EXPECT_THAT(warning(Sequential{}, 35), HasSubstr(uses(4)));  // windows [0, 35) and [35, 60)
  EXPECT_THAT(warning(Sequential{}, 45), HasSubstr(uses(5)));
  EXPECT_THAT(warning(Sequential{}, 8192), HasSubstr(uses(6)));
  EXPECT_EQ(warning(Sharded{.window = 1}, 10), "none");
  EXPECT_THAT(warning(Sharded{.window = 1}, 60), HasSubstr(uses(6)));
}

TEST_F(RemoteLoaderTest, StopEndsAWaitForAServerThatHangs) {
  for (const Way& way : all_ways()) {
    SCOPED_TRACE(testing::PrintToString(way));
    const Dataset data = open(way.has_cache);
    *hang_ = true;
    const int before = server_.gets(path(3));
    Loader loader(data, options(way));
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(loader.next().has_value());
    std::thread stopper([&] {
      wait_for_request(before);
      loader.stop();
    });
    EXPECT_EQ(error_code([&] { loader.next(); }), ErrorCode::kCancelled);
    stopper.join();
    EXPECT_EQ(error_code([&] { loader.next(); }), ErrorCode::kCancelled);
    const ResumeToken token = loader.state();
    EXPECT_EQ(token.position, 3u * kSamples);

    *hang_ = false;
    loader.restore(token);
    EXPECT_EQ(take_rest(loader), 3u * kSamples);
    EXPECT_THAT(loader.prove(), HasSubstr("60 samples, each exactly once: proven"));
  }
}

TEST_F(RemoteLoaderTest, DestructionAndAnotherEpochDoNotWaitForAServerThatHangs) {
  for (const Way& way : all_ways()) {
    // Without threads nothing runs beside next().
    if (way.threads == 0 && way.fetch_threads == 0) continue;
    SCOPED_TRACE(testing::PrintToString(way));
    const Dataset data = open(way.has_cache);
    *hang_ = true;
    const int before = server_.gets(path(3));
    auto loader = std::make_unique<Loader>(data, options(way));
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(loader->next().has_value());
    wait_for_request(before);
    loader->set_epoch(1);
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(loader->next().has_value());
    loader.reset();  // must return although the server hangs
    *hang_ = false;
  }
}

TEST_F(RemoteLoaderTest, WhatOneLoaderStopsAnotherOfTheSameDataDoesNotFeel) {
  for (const Way& way : all_ways()) {
    SCOPED_TRACE(testing::PrintToString(way));
    const Dataset data = open(way.has_cache);
    *hang_ = true;
    const int before = server_.gets(path(3));
    auto left = std::make_unique<Loader>(data, options(way));
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(left->next().has_value());
    std::thread waiting(
        [&] { EXPECT_EQ(error_code([&] { left->next(); }), ErrorCode::kCancelled); });
    wait_for_request(before);
    Loader other(data, options(way));
    std::size_t count = 0;
    std::atomic<bool> is_under_way{false};
    std::thread going_on([&] {
      for (int step = 0; step < 3; ++step) count += other.next()->size();
      is_under_way = true;
      count += take_rest(other);
    });
    while (!is_under_way) std::this_thread::yield();
    left->stop();
    waiting.join();
    left.reset();
    *hang_ = false;
    going_on.join();
    EXPECT_EQ(count, std::size_t{kShards} * kSamples);
    EXPECT_THAT(other.prove(), HasSubstr("60 samples, each exactly once: proven"));
  }
}

TEST_F(RemoteLoaderTest, StartFetchesAndReadsBeforeTheFirstNext) {
  for (const Way& way : all_ways()) {
    if (way.threads == 0 && way.fetch_threads == 0) continue;
    SCOPED_TRACE(testing::PrintToString(way));
    const Dataset data = open(way.has_cache);
    const int before = server_.gets(path(1));
    Loader loader(data, options(way));
    loader.start();
    while (server_.gets(path(1)) == before) std::this_thread::yield();
    loader.start();
    EXPECT_EQ(take_rest(loader), std::size_t{kShards} * kSamples);
    EXPECT_THAT(loader.prove(), HasSubstr("proven"));
  }
}

TEST_F(RemoteLoaderTest, AnythingMayFollowStartAtOnce) {
  for (const Way& way : all_ways()) {
    SCOPED_TRACE(testing::PrintToString(way));
    const Dataset data = open(way.has_cache);
    ResumeToken token;
    {
      Loader loader(data, options(way));
      loader.next();
      token = loader.state();
    }
    const auto all = std::size_t{kShards} * kSamples;
    {
      Loader loader(data, options(way));
      loader.start();
    }
    {
      Loader loader(data, options(way));
      loader.start();
      loader.stop();
      EXPECT_EQ(error_code([&] { loader.next(); }), ErrorCode::kCancelled);
      loader.start();
      EXPECT_EQ(error_code([&] { loader.next(); }), ErrorCode::kCancelled);
      loader.set_epoch(0);
      loader.start();
      EXPECT_EQ(take_rest(loader), all);
    }
    {
      Loader loader(data, options(way));
      loader.start();
      loader.restore(token);
      loader.start();
      EXPECT_EQ(take_rest(loader), all - kSamples);
      EXPECT_THAT(loader.prove(), HasSubstr("60 samples, each exactly once: proven"));
    }
    {
      Loader loader(data, options(way));
      loader.start();
      loader.set_epoch(2);
      EXPECT_EQ(take_rest(loader), all);
      EXPECT_THAT(loader.prove(), HasSubstr("epoch 2: 60 samples, each exactly once: proven"));
      loader.start();  // at the end of an epoch this does nothing
      EXPECT_FALSE(loader.next().has_value());
    }
  }
}

/// Lives of a loader with random ends: the loop breaks off, stops or throws, or the loader is
/// destroyed, while shards are fetched, evicted, or waited for.
class RemoteExits : public RemoteLoaderTest {
 protected:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool percent(std::uint64_t chance) { return below(100) < chance; }

  /// Returns data with a cache for all shards, or for two or three of them. The cache may have been
  /// used before.
  const Dataset& any_data() {
    if (!data_ || percent(20)) data_ = open(true, shard_bytes_ * (percent(30) ? 10 : 2 + below(2)));
    return *data_;
  }

  void live_once(std::uint64_t seed) {
    random_.seed(seed);
    std::atomic<std::int64_t> fuse{percent(40) ? static_cast<std::int64_t>(below(60)) : -1};
    const auto light = [&fuse](const Sample&, const Hash128&, columns::Row& row) {
      if (fuse >= 0 && fuse.fetch_sub(1) == 0) throw std::runtime_error("the fuse");
      row.values<std::int8_t>()[0] = 7;
    };
    Loader::Options how =
        options({true, static_cast<unsigned>(below(3)), static_cast<unsigned>(below(5))});
    how.columns.push_back(columns::function("light", DType::kInt8, {}, light));
    how.order = {.seed = seed, .kind = Chunked{.chunk_size = 1 + below(20)}};
    how.batch_size = 1 + below(15);
    auto loader = std::make_unique<Loader>(any_data(), how);
    *hang_ = percent(30);
    const auto after = [](std::uint64_t turns, const auto& act) {
      return std::thread([turns, act] {
        for (std::uint64_t i = 0; i < turns; ++i) std::this_thread::yield();
        act();
      });
    };
    std::thread releaser = after(below(50), [this] { *hang_ = false; });
    std::optional<std::thread> stopper;
    if (percent(40)) stopper = after(below(50), [&] { loader->stop(); });
    for (std::uint64_t ops = below(12); ops > 0; --ops) one_op(*loader);
    if (stopper) stopper->join();
    loader.reset();
    releaser.join();
  }

  void one_op(Loader& loader) {
    try {
      switch (below(8)) {
        case 0:
          return loader.start();
        case 1:
          return percent(30) ? loader.stop() : loader.start();
        case 2:
          return loader.set_epoch(below(4));
        case 3:
          return loader.restore(loader.state());
        case 4:
          for (auto epoch : loader.epochs(2)) {
            for (const Batch& batch : epoch) {
              num_batches_ += batch.size() > 0;
              if (percent(20)) return;
            }
          }
          return;
        default:
          num_batches_ += loader.next().has_value();
      }
    } catch (const Error& error) {
      const bool is_expected =
          error.code() == ErrorCode::kCancelled || error.code() == ErrorCode::kNotExact ||
          error.code() == ErrorCode::kMismatch || error.code() == ErrorCode::kInvalidArgument;
      EXPECT_TRUE(is_expected) << error.what();
      num_cancelled_ += error.code() == ErrorCode::kCancelled;
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the fuse");
    }
  }

  std::mt19937_64 random_;
  std::optional<Dataset> data_;
  std::uint64_t num_batches_ = 0;
  std::uint64_t num_cancelled_ = 0;
};

TEST_F(RemoteExits, ALoaderMayBeLeftInAnyState) {
  test::for_each_seed(30, 1000, [this](std::uint64_t seed) { live_once(seed); });
  std::cout << num_batches_ << " batches, " << num_cancelled_ << " calls cancelled\n";
  Loader loader(*data_, options({true, 2, 2}));
  EXPECT_EQ(take_rest(loader), std::size_t{kShards} * kSamples) << "the data set is as before";
}

TEST_F(RemoteLoaderTest, SamplesOfABatchComeInARequestForEachShard) {
  constexpr std::size_t kAll = std::size_t{kShards} * kSamples;
  const auto gets = [&] {
    int count = 0;
    for (int shard = 0; shard < kShards; ++shard) count += server_.gets(path(shard));
    return count;
  };
  for (const unsigned threads : {0U, 1U, 3U}) {
    for (const bool is_mixture : {false, true}) {
      SCOPED_TRACE(std::to_string(threads) + (is_mixture ? " threads, mixture" : " threads"));
      const int before = gets();
      const MixedDataset data =
          is_mixture ? MixedDataset({open(false), open(false)}) : MixedDataset(open(false));
      Loader::Options how = options({false, 0, threads});
      how.batch_size = 20;
      how.order.seed = 5;
      how.order.kind = Chunked{};
      if (is_mixture) how.order.kind = data.mixture(std::array{0.5, 0.5});
      Loader loader(data, how);
      std::size_t count = 0;
      int batches = 0;
      while (const auto batch = loader.next()) {
        ++batches;
        for (std::size_t i = 0; i < batch->size(); ++i, ++count) {
          const auto number = static_cast<std::size_t>(batch->samples()[i]) % kAll;
          EXPECT_EQ((*batch)["txt"].text(i), "text " + std::to_string(number));
        }
      }
      EXPECT_GE(count, kAll);
      // Without hashes, a thread also fetches the first header of each shard, unless another thread
      // already has.
      const int parts = is_mixture ? 2 : 1;
      const int headers = std::max(1, static_cast<int>(threads));
      EXPECT_LE(gets() - before, kShards * (batches + headers) * parts);
    }
  }
}

}  // namespace
}  // namespace shardwise
