// One cache with several users. Their fetches are counted at a server, and compared with those of
// an ideal cache that knows all their orders (the same uses, interleaved in the same way).
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/hasher.h"
#include "data/cache_simulation.h"
#include "data/dataset_access.h"
#include "data/dataset_impl.h"
#include "order/shard_use.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/order/sampler.h"
#include "storage/cache_futures.h"
#include "storage/eviction.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

constexpr std::uint64_t kSamples = 10;  // per shard

/// Records the uses of shards by all users: the first and the last sample for which a user needed
/// a shard. Samples are numbered in the order in which the users together read them.
class Diary {
 public:
  /// Records that a user read a sample of a shard.
  void read(int user, std::uint64_t epoch, std::uint64_t shard) {
    auto& use = uses_.try_emplace({user, epoch, shard}, now_, now_).first->second;
    use.second = ++now_;
  }
  std::uint64_t num_uses() const { return uses_.size(); }
  std::uint64_t fetches(std::uint64_t num_shards, std::uint64_t budget_shards,
                        Replacement replacement) const {
    EpochSchedule all{.num_slots = now_, .uses = {}};
    for (std::uint64_t shard = 0; shard < num_shards; ++shard) {
      std::vector<UseInterval> of_shard;
      for (const auto& [key, use] : uses_) {
        if (std::get<2>(key) == shard) of_shard.push_back({shard, use.first, use.second});
      }
      std::sort(of_shard.begin(), of_shard.end(),
                [](const UseInterval& a, const UseInterval& b) { return a.begin < b.begin; });
      for (const UseInterval& use : of_shard) {
        if (!all.uses.empty() && all.uses.back().shard == shard &&
            use.begin < all.uses.back().end) {
          all.uses.back().end = std::max(all.uses.back().end, use.end);
        } else {
          all.uses.push_back(use);
        }
      }
    }
    std::sort(all.uses.begin(), all.uses.end(), [](const UseInterval& a, const UseInterval& b) {
      return std::pair(a.begin, a.shard) < std::pair(b.begin, b.shard);
    });
    const std::vector<std::uint64_t> sizes(num_shards, 1);
    return simulate_cache({&all, 1}, sizes, budget_shards, replacement).front().fetches;
  }

 private:
  std::uint64_t now_ = 0;
  std::map<std::tuple<int, std::uint64_t, std::uint64_t>, std::pair<std::uint64_t, std::uint64_t>>
      uses_;
};

class SharedCacheTest : public ::testing::Test {
 protected:
  SharedCacheTest() : fetchers_(std::make_shared<const Fetchers>(test::quick_options())) {}

  /// Serves and indexes more shards. Their numbers continue after the existing ones.
  std::string make_index(int num_shards) {
    std::vector<std::string> urls;
    for (int shard = 0; shard < num_shards; ++shard, ++num_shards_) {
      test::TarBuilder tar;
      for (std::uint64_t i = 0; i < kSamples; ++i) {
        tar.file("s" + std::to_string(100 * num_shards_ + i) + ".txt", std::string(3000, 'x'));
      }
      tar.end();
      shard_bytes_ = tar.size();
      const std::string path = "/" + std::to_string(num_shards_) + ".tar";
      server_.serve(path, {.body = tar.bytes()});
      urls.push_back(server_.url(path));
    }
    const std::string index = dir_ / ("index" + std::to_string(num_shards_));
    build_index(index, urls, {.remote = make_remote_access(fetchers_, nullptr)});
    return index;
  }
  /// Opens the shared directory as a separate ShardCache, as another process would.
  std::shared_ptr<ShardCache> cache(std::uint64_t budget_shards) {
    return ShardCache::open({.directory = dir_ / "cache",
                             .budget_bytes = budget_shards * shard_bytes_,
                             .room_timeout = std::chrono::milliseconds(1),
                             .fetchers = fetchers_});
  }
  std::uint64_t total_gets() const {
    std::uint64_t gets = 0;
    for (int shard = 0; shard < num_shards_; ++shard) {
      gets += static_cast<std::uint64_t>(server_.gets("/" + std::to_string(shard) + ".tar"));
    }
    return gets;
  }

  /// One user, who reads epochs sample by sample.
  class User {
   public:
    User(int number, const std::string& index, std::shared_ptr<ShardCache> cache,
         std::uint64_t first_shard, const Order& order, const RankOptions& ranks,
         unsigned fetch_threads = 0)
        : number_(number),
          first_shard_(first_shard),
          data_(Dataset::open(index, {.cache = std::move(cache)})),
          sampler_(make_sampler(data_, order, ranks)),
          prefetcher_(
              data_, *sampler_,
              {.fetch_threads = fetch_threads, .node = {.first = 0, .count = ranks.world_size}}) {}

    void begin_epoch(std::uint64_t epoch) {
      sampler_->set_epoch(epoch);
      prefetcher_.begin_epoch(*sampler_);
    }
    /// Reads one sample. Returns false at the end of the epoch.
    bool step(Diary& diary) {
      const auto number = sampler_->next();
      if (!number) return false;
      const Sample sample = data_[*number];
      EXPECT_EQ(sample["txt"].size(), 3000u);
      diary.read(number_, sampler_->epoch(), first_shard_ + *number / kSamples);
      prefetcher_.reached(sampler_->position());
      return true;
    }

   private:
    const int number_;
    const std::uint64_t first_shard_;
    const Dataset data_;
    const std::unique_ptr<Sampler> sampler_;
    ShardPrefetcher prefetcher_;
  };

  void expect_near_ideal(const char* what, const Diary& diary, std::uint64_t budget_shards,
                         std::uint64_t fetched, std::uint64_t most_percent = 110) {
    const auto count = static_cast<std::uint64_t>(num_shards_);
    const std::uint64_t ideal = diary.fetches(count, budget_shards, Replacement::kNextUse);
    const std::uint64_t lru = diary.fetches(count, budget_shards, Replacement::kLru);
    std::printf("%s, budget %d shards: %d fetched; ideal %d, LRU %d, %d uses\n", what,
                static_cast<int>(budget_shards), static_cast<int>(fetched), static_cast<int>(ideal),
                static_cast<int>(lru), static_cast<int>(diary.num_uses()));
    EXPECT_LE(100 * fetched, most_percent * ideal + 99) << what << ", budget " << budget_shards;
    EXPECT_LE(fetched, lru) << what << ", budget " << budget_shards;
    EXPECT_LE(fetched, diary.num_uses()) << what << ", budget " << budget_shards;
  }

  test::TempDir dir_;
  test::TestHttpServer server_;
  std::shared_ptr<const Fetchers> fetchers_;
  std::uint64_t shard_bytes_ = 0;
  int num_shards_ = 0;
};

std::uint64_t text_bytes(const Dataset& data, std::uint64_t number) {
  const Sample sample = data[number];
  return sample["txt"].size();
}

const Order kWhole{.seed = 11, .kind = Sharded{.window = 1}};

// Fault under test: tests/faults.md 52.
TEST_F(SharedCacheTest, TrainingAndEvaluationOfOneProcessFetchLittleMoreThanOneThatKnowsBoth) {
  const std::string train = make_index(24), eval = make_index(8);
  for (const std::uint64_t budget : {4u, 12u, 20u, 32u}) {
    std::filesystem::remove_all(dir_ / "cache");
    const std::uint64_t before = total_gets();
    const auto shared = cache(budget);
    Diary diary;
    User trainer(0, train, shared, 0, kWhole, {});
    User evaluator(1, eval, shared, 24, {.kind = Sequential{}}, {});
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
      trainer.begin_epoch(epoch);
      while (trainer.step(diary)) {
      }
      evaluator.begin_epoch(epoch);
      while (evaluator.step(diary)) {
      }
    }
    expect_near_ideal("training and evaluation", diary, budget, total_gets() - before);
  }
}

// Fault under test: tests/faults.md 52.
TEST_F(SharedCacheTest, TwoJobsFetchLittleMoreThanOneThatKnowsBoth) {
  const std::string index = make_index(24);
  for (const std::uint64_t budget : {4u, 8u, 16u, 24u}) {
    std::filesystem::remove_all(dir_ / "cache");
    const std::uint64_t before = total_gets();
    Diary diary;
    User one(0, index, cache(budget), 0, kWhole, {});
    User two(1, index, cache(budget), 0, {.seed = 12, .kind = Sharded{.window = 1}}, {});
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      one.begin_epoch(epoch);
      two.begin_epoch(epoch);
      for (bool is_going = true; is_going;) {
        is_going = one.step(diary);
        is_going |= two.step(diary);
      }
    }
    expect_near_ideal("two jobs", diary, budget, total_gets() - before);
  }
}

TEST_F(SharedCacheTest, AReaderOfUnknownOrderLeavesWhatOthersAreAboutToRead) {
  const std::string index = make_index(4), other = make_index(4);
  const std::uint64_t indexed = total_gets();
  Diary diary;
  User trainer(0, index, cache(5), 0, {.kind = Sequential{}}, {});
  trainer.begin_epoch(0);
  while (trainer.step(diary)) {
  }
  trainer.begin_epoch(1);
  ASSERT_EQ(total_gets() - indexed, 4u);
  const Dataset browsed = Dataset::open(other, {.cache = cache(5)});
  // The least recently used shards are the trainer's, which needs all of them again.
  for (const std::uint64_t shard : {0u, 1u, 2u, 3u}) {
    const Sample sample = browsed[shard * kSamples];
    EXPECT_EQ(sample["txt"].size(), 3000u);
  }
  const std::uint64_t before = total_gets();
  while (trainer.step(diary)) {
  }
  EXPECT_LE(total_gets() - before, 2u) << "its share is half of five; the least recently used "
                                          "would all have gone";
}

// Fault under test: tests/faults.md 52.
TEST_F(SharedCacheTest, AReaderOfUnknownOrderHasAFairShare) {
  const std::string index = make_index(8), other = make_index(3);
  Diary diary;
  User trainer(0, index, cache(8), 0, {.kind = Sequential{}}, {});
  const auto theirs = cache(8);
  const Dataset browsed = Dataset::open(other, {.cache = theirs});
  int visits = 0;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    trainer.begin_epoch(epoch);
    for (std::uint64_t step = 0; trainer.step(diary); ++step) {
      if (step % 5 != 0) continue;
      const Sample sample = browsed[static_cast<std::uint64_t>(visits++ % 3) * kSamples];
      EXPECT_EQ(sample["txt"].size(), 3000u);
    }
  }
  EXPECT_EQ(visits, 48);
  // The reader's share is four of the eight shards, and it reads three.
  EXPECT_LE(theirs->stats().fetched, 6u);
}

// Fault under test: tests/faults.md 52.
TEST_F(SharedCacheTest, WhatIsFetchedAheadIsHeldUntilItsUseAlsoWhenAnEpochBeginsAnew) {
  const std::string index = make_index(4), other = make_index(1);
  const Dataset data = Dataset::open(index, {.cache = cache(3)});
  const auto sampler = make_sampler(data, {.kind = Sequential{}}, {});
  ShardPrefetcher prefetcher(data, *sampler, {.fetch_threads = 1});
  const auto held = [&] {
    const auto entries = data.cache()->entries();
    return std::count_if(entries.begin(), entries.end(), [](const auto& e) { return e.in_use; });
  };
  while (held() < 3) std::this_thread::yield();
  prefetcher.begin_epoch(*sampler);
  EXPECT_EQ(held(), 3) << "they are still needed first";
  const auto others = cache(3);
  const Dataset browsed = Dataset::open(other, {.cache = others});
  EXPECT_EQ(text_bytes(browsed, 0), 3000u);
  EXPECT_EQ(others->stats().evicted, 0u) << "nobody takes what is held";
  EXPECT_GE(held(), 3) << "and the one that is browsed";
  EXPECT_EQ(data.cache()->stats().fetched, 3u);
}

TEST_F(SharedCacheTest, AForkedReaderIsAUserOfItsOwn) {
  const std::string index = make_index(2);
  const Dataset data = Dataset::open(index, {.cache = cache(2)});
  EXPECT_EQ(text_bytes(data, 0), 3000u);
  const auto num_users = [&] {
    return detail::FutureBoard(dir_ / "cache/futures").others("").size();
  };
  EXPECT_EQ(num_users(), 1u);
  EXPECT_EQ(test::in_child([&]() -> std::string {
              if (text_bytes(data, 0) != 3000u) return "wrong bytes";
              if (text_bytes(data, kSamples) != 3000u) return "wrong bytes";
              return num_users() == 2 ? "" : "not two users";
            }),
            "");
  EXPECT_EQ(num_users(), 1u) << "the child has ended";
}

// faults.md 52: two processes whose threads fetch ahead.
TEST_F(SharedCacheTest, TwoProcessesThatFetchAheadFetchLittleMoreThanOneThatKnowsBoth) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "needs a build without ThreadSanitizer; skipped because it starts no threads in "
                  "a forked child";
#endif
  constexpr std::uint64_t kEpochs = 3;
  const std::string index = make_index(24);
  const std::array<Order, 2> orders{kWhole, Order{.seed = 12, .kind = Sharded{.window = 1}}};
  struct Steps {
    std::array<std::atomic<std::uint64_t>, 2> done{};
  };
  for (const std::uint64_t budget : {8u, 16u, 24u}) {
    std::filesystem::remove_all(dir_ / "cache");
    const std::uint64_t before = total_gets();
    const test::Shared<Steps> steps;
    std::deque<test::Child> jobs;
    for (std::size_t job = 0; job < orders.size(); ++job) {
      jobs.emplace_back([&, job]() -> std::string {
        Diary own;
        User user(static_cast<int>(job), index, cache(budget), 0, orders[job], {}, 2);
        for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
          user.begin_epoch(epoch);
          while (user.step(own)) {
            // The processes run in step, so that the order of their reads is known.
            const std::uint64_t mine = ++steps->done[job];
            while (steps->done[1 - job] + 1 < mine) std::this_thread::yield();
          }
        }
        return HasFailure() ? "wrong bytes" : "";
      });
    }
    for (test::Child& job : jobs) EXPECT_EQ(job.wait(), "");
    Diary diary;
    const Dataset data = Dataset::open(index, {.cache = cache(budget)});
    const std::array samplers{make_sampler(data, orders[0]), make_sampler(data, orders[1])};
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (const auto& sampler : samplers) sampler->set_epoch(epoch);
      while (const auto number = samplers[0]->next()) {
        diary.read(0, epoch, *number / kSamples);
        diary.read(1, epoch, samplers[1]->next().value() / kSamples);
      }
    }
    // How far ahead each process fetches depends on the machine.
    expect_near_ideal("two processes that fetch ahead", diary, budget, total_gets() - before, 150);
  }
}

// Fault under test: tests/faults.md 52.
TEST_F(SharedCacheTest, ShardsWithoutRoomAreLetGoOfWhenTheNextIsRead) {
  const std::string index = make_index(5);
  const Dataset other = Dataset::open(index, {.cache = cache(1)});
  const Sample held = other[0];  // takes all the room
  const Dataset data = Dataset::open(index, {.cache = cache(1)});
  const auto num_files = [&] {
    const auto all = std::filesystem::directory_iterator(dir_ / "cache/shards");
    return std::count_if(begin(all), end(all), [](const std::filesystem::directory_entry& file) {
      return file.file_size() >= 10 * 3000;
    });
  };
  for (const std::uint64_t shard : {1u, 2u, 3u, 4u}) {
    const Sample sample = data[shard * kSamples];
    EXPECT_EQ(sample["txt"].size(), 3000u);
    EXPECT_EQ(num_files(), 2);
  }
  const Sample third = data[3 * kSamples], fourth = data[4 * kSamples];
  const Sample again = data[2 * kSamples];
  EXPECT_EQ(fourth["txt"], third["txt"]);
  EXPECT_EQ(num_files(), 2) << "while one is held, samples of the others are read uncached";
}

TEST_F(SharedCacheTest, TheEndOfAnOlderPrefetcherLeavesTheFutureOfANewerOne) {
  const std::string index = make_index(2);
  const Dataset data = Dataset::open(index, {.cache = cache(2)});
  const auto sampler = make_sampler(data, {.kind = Sequential{}}, {});
  const auto current = [&] { return detail::DatasetAccess::impl(data).current_future(); };
  auto older = std::make_unique<ShardPrefetcher>(data, *sampler);
  ASSERT_NE(current(), nullptr);
  auto newer = std::make_unique<ShardPrefetcher>(data, *sampler);
  const auto of_newer = current();
  older.reset();
  EXPECT_EQ(current(), of_newer);
  newer.reset();
  EXPECT_EQ(current(), nullptr);
}

/// Ranks that read the same order, each of which advances by several steps at a time.
template <class User>
class DriftingRanks {
 public:
  template <class MakeUser>
  DriftingRanks(std::uint64_t count, const MakeUser& make) {
    for (std::uint64_t rank = 0; rank < count; ++rank) ranks_.push_back(make(rank));
  }
  /// @param most_ahead  maximum number of steps by which a rank may be ahead of the slowest.
  void run_epoch(std::uint64_t epoch, std::uint64_t most_ahead, std::mt19937_64& random,
                 Diary& diary) {
    constexpr std::uint64_t kDone = ~std::uint64_t{0};
    std::vector<std::uint64_t> steps(ranks_.size(), 0);
    for (const auto& rank : ranks_) rank->begin_epoch(epoch);
    for (;;) {
      const std::uint64_t slowest = *std::min_element(steps.begin(), steps.end());
      if (slowest == kDone) return;
      const std::uint64_t rank = random() % ranks_.size();
      for (std::uint64_t n = random() % 12; n > 0; --n) {
        if (steps[rank] == kDone || steps[rank] >= slowest + most_ahead) break;
        steps[rank] = ranks_[rank]->step(diary) ? steps[rank] + 1 : kDone;
      }
    }
  }

 private:
  std::vector<std::unique_ptr<User>> ranks_;
};

// Fault under test: tests/faults.md 52.
TEST_F(SharedCacheTest, RanksThatDriftKeepWhatTheSlowestNeeds) {
  constexpr std::uint64_t kRanks = 4;
  const std::string index = make_index(24);
  std::mt19937_64 random(20'261'125);  // about 1 in 20 other seeds exceeds the bound
  for (const std::uint64_t most_ahead : {8u, 16u, 1000u}) {
    for (const std::uint64_t budget : {6u, 10u, 16u, 24u}) {
      std::filesystem::remove_all(dir_ / "cache");
      const std::uint64_t before = total_gets();
      Diary diary;
      DriftingRanks<User> ranks(kRanks, [&](std::uint64_t rank) {
        return std::make_unique<User>(static_cast<int>(rank), index, cache(budget), 0, kWhole,
                                      RankOptions{.rank = rank, .world_size = kRanks});
      });
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        ranks.run_epoch(epoch, most_ahead, random, diary);
      }
      expect_near_ideal(("ranks up to " + std::to_string(most_ahead) + " steps apart").c_str(),
                        diary, budget, total_gets() - before);
    }
  }
}

TEST(JointNextUseTest, TheSoonestUseOfAllUsersCounts) {
  const auto name = [](std::uint64_t n) { return Hash128{n, n}; };
  const auto other = [&](std::vector<detail::PostedUse> uses, std::uint64_t now) {
    return detail::OtherUser{std::make_shared<const detail::UserFuture>(std::move(uses)),
                             {.now = now, .slots_done = 100, .began_ns = 0, .bytes_per_slot = 1}};
  };
  const detail::UserPace mine{.now = 10, .slots_done = 200, .began_ns = 0, .bytes_per_slot = 1};
  // The other user is half as fast: one of its slots takes two slots of this user.
  const std::vector<detail::OtherUser> others{
      other({{name(1), 60, 61}, {name(2), 40, 45}, {name(3), 50, 60}, {name(4), 20, 30}}, 50)};
  const auto joint = [&](NextUse own, std::uint64_t shard, std::uint64_t at = 10) {
    return detail::joint_next_use(own, name(shard), at, mine, 0, others, 1000);
  };
  const NextUse never{.kind = NextUse::Kind::kNever};
  EXPECT_EQ(joint(never, 1).position, 30u);
  EXPECT_EQ(joint({.kind = NextUse::Kind::kAt, .position = 25}, 1).position, 25u);
  EXPECT_EQ(joint({.kind = NextUse::Kind::kAt, .position = 40}, 1).position, 30u);
  EXPECT_EQ(joint(never, 2).kind, NextUse::Kind::kNever);
  EXPECT_EQ(joint({}, 2).kind, NextUse::Kind::kNever) << "known, though not by this user";
  EXPECT_EQ(joint({}, 5).kind, NextUse::Kind::kUnknown);
  EXPECT_EQ(joint(never, 3).position, 10u) << "in use: it leaves last";
  EXPECT_FALSE(joint(never, 3).may_go_now);
  EXPECT_EQ(joint({.kind = NextUse::Kind::kInUse}, 1).kind, NextUse::Kind::kInUse);
  // Both paces predict that the other user is at slot 70 when this one is at slot 50. It will not
  // need shard 1 any more by then, but needs it now.
  EXPECT_EQ(joint(never, 1, 50).kind, NextUse::Kind::kNever);
  EXPECT_FALSE(joint(never, 1, 50).may_go_now);
}

// Fault under test: tests/faults.md 52.
TEST(JointNextUseTest, WhatRanksNeedInTheNextEpochComesOnceTheSlowestHasEndedThisOne) {
  const Hash128 this_epoch{1, 1}, next_epoch{2, 2}, both{3, 3};
  const auto future = std::make_shared<const detail::UserFuture>(std::vector<detail::PostedUse>{
      {this_epoch, 50, 60}, {next_epoch, 105, 110}, {both, 40, 45}, {both, 101, 105}});
  const std::vector<detail::OtherUser> others{{future, {.now = 30}}};
  const auto joint = [&](const Hash128& name, std::uint64_t at, std::uint64_t waits_at) {
    const NextUse mine = future->next_use(name, at, 90);
    const detail::UserPace pace{.now = 90, .waits_at = waits_at};
    return detail::joint_next_use(mine, name, at, pace, future->hash(), others, 1000);
  };
  // The other rank has 70 slots left in this epoch.
  EXPECT_EQ(joint(this_epoch, 90, 100).position, 90u + 20);
  EXPECT_EQ(joint(next_epoch, 90, 100).position, 90u + 70 + 5);
  EXPECT_EQ(joint(both, 90, 100).position, 90u + 10);
  EXPECT_EQ(joint(next_epoch, 90, 0).position, 105u) << "those that do not wait";
  // This user plans at slot 102, in the next epoch. It waits at slot 100 until the other rank has
  // ended this epoch.
  EXPECT_EQ(joint(next_epoch, 102, 100).position, 105u);
  EXPECT_EQ(joint(this_epoch, 102, 100).kind, NextUse::Kind::kNever);
  EXPECT_FALSE(joint(this_epoch, 102, 100).may_go_now);
}

TEST(FutureBoardTest, ShowsUsersThatLiveAndRemovesFilesOfOthers) {
  const test::TempDir dir;
  detail::FutureBoard board(dir.path());
  const detail::UserFuture future({{{1, 2}, 3, 4}});
  {
    detail::PostedFuture posted(dir.path(), future, {.now = 5, .slots_done = 7, .began_ns = 9});
    EXPECT_THAT(board.others(posted.file_name()), testing::IsEmpty());
    ASSERT_THAT(board.others(""), testing::SizeIs(1));
    posted.reach(6);
    const detail::OtherUser seen = board.others("").front();
    EXPECT_EQ(seen.future->uses(), future.uses());
    EXPECT_EQ(seen.pace.now, 6u);
    EXPECT_EQ(seen.pace.slots_done, 8u);
    EXPECT_EQ(seen.pace.began_ns, 9);
    for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
      std::filesystem::copy_file(entry.path(), entry.path().string() + ".future");
    }
    EXPECT_THAT(board.others(""), testing::SizeIs(1)) << "nobody holds the copy";
  }
  EXPECT_THAT(board.others(""), testing::IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(FutureBoardTest, AFileThatStatesMoreUsesThanItHasCostsNoMemory) {
  const test::TempDir dir;
  const detail::PostedFuture posted(dir.path(), detail::UserFuture({{{1, 2}, 3, 4}}), {});
  const auto others = [&] { return detail::FutureBoard(dir.path()).others(""); };
  ASSERT_THAT(others(), testing::SizeIs(1));
  const std::string path = dir / posted.file_name();
  std::string bytes = test::read_file(path);
  const auto put = [&](std::size_t at, std::uint64_t number) {
    std::memcpy(bytes.data() + at, &number, sizeof number);
  };
  put(16, 10'000'000);  // uses of 32 bytes
  put(56, hash64(std::string_view(bytes).substr(0, 56)));
  test::write_file(path, bytes);
  const auto peak_kib = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const auto before = peak_kib();
  EXPECT_THAT(others(), testing::IsEmpty());
  EXPECT_LT(peak_kib() - before, 100 << 10);
}

}  // namespace
}  // namespace shardwise
