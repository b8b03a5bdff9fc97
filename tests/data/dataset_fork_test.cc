// faults.md 50: a parent forks while its other threads read, fetch and query.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "data/dataset_access.h"
#include "data/open_shard.h"
#include "data/shards.h"
#include "index/catalogue.h"
#include "index/index_files.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/index/query.h"
#include "shardwise/order/sampler.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::AtMost;
using test::in_child;
using test::Shards;
using test::wrong_with;

constexpr unsigned kHang = 100;  // number of seconds after which a child counts as hanging

/// Threads that call `body(random)` repeatedly until this object is destroyed. A non-empty result
/// is an error.
class Busy {
 public:
  using Body = std::function<std::string(std::mt19937_64& random)>;
  Busy(unsigned count, std::uint64_t seed, const Body& body) {
    for (unsigned i = 0; i < count; ++i) {
      threads_.emplace_back([this, body, random = std::mt19937_64(seed + i)]() mutable {
        while (!stop_) {
          std::string wrong;
          try {
            wrong = body(random);
          } catch (const std::exception& e) {
            wrong = e.what();
          }
          ++rounds_;
          if (wrong.empty()) continue;
          const std::lock_guard lock(mutex_);
          wrong_ = wrong;
        }
      });
    }
  }
  ~Busy() { end(); }
  /// Stops the threads. Returns the first error.
  std::string end() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return rounds_ == 0 ? "the parent's threads did nothing" : wrong_;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> rounds_{0};
  std::mutex mutex_;
  std::string wrong_;
  std::vector<std::thread> threads_;
};

template <class Data>
std::string wrong_with_some(const Data& data, std::mt19937_64& random, int count) {
  for (int i = 0; i < count; ++i) {
    if (auto wrong = wrong_with(data, random() % data.size()); !wrong.empty()) return wrong;
  }
  return {};
}

/// Threads that fetch allocate memory so often that one of several hundred children found the
/// allocator locked.
constexpr const char* kWhySkipped =
    "needs a build without ThreadSanitizer; skipped because its allocator may be locked in a child";

class DatasetBusyForkTest : public ::testing::Test {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(kSeed)); }

  /// Forks `count` times. Each child reads samples of every kind.
  void fork_often(const Dataset& data, int count) {
    for (int round = 0; round < count; ++round) {
      std::mt19937_64 random(kSeed + 1000 + static_cast<std::uint64_t>(round));
      ASSERT_EQ(in_child([&]() -> std::string {
                  const AtMost limit(kHang);
                  if (auto wrong = wrong_with_some(data, random, 30); !wrong.empty()) return wrong;
                  const std::uint64_t some = random() % data.size();
                  if (data.get(test::key_of(some)).index() != some) return "another by its key";
                  return data.index().shard(0).num_samples == 20 ? "" : "another shard";
                }),
                "")
          << "round " << round << ", seed " << kSeed;
    }
  }

  static constexpr std::uint64_t kSeed = 20261122;
};

TEST_F(DatasetBusyForkTest, ChildrenReadThroughASmallPool) {
  const Shards shards(12, 20);
  for (const Dataset::Access access : {Dataset::Access::kMap, Dataset::Access::kRead}) {
    const Dataset data =
        Dataset::open(shards.index_path(), {.max_open_shards = 4, .access = access});
    Busy busy(2, kSeed, [&](auto& random) { return wrong_with_some(data, random, 1); });
    fork_often(data, 300);
    EXPECT_EQ(busy.end(), "");
    EXPECT_EQ(wrong_with(data), "");
  }
}

TEST_F(DatasetBusyForkTest, ChildrenReadThroughADefaultPool) {
  const Shards shards(12, 20);
  const Dataset data = Dataset::open(shards.index_path());
  Busy busy(2, kSeed, [&](auto& random) {
    DatasetAccess::close_shard(data, random() % 12);  // so that there is always a shard to open
    return wrong_with_some(data, random, 1);
  });
  fork_often(data, 300);
  EXPECT_EQ(busy.end(), "");
  EXPECT_EQ(wrong_with(data), "");
}

TEST_F(DatasetBusyForkTest, ChildrenUseTheIndexWhileThreadsQuery) {
  const Shards shards(12, 20);
  const Dataset data = Dataset::open(shards.index_path());
  const auto index = data.shared_index();
  Query kept(index, "SELECT count(*) FROM samples");
  const auto wrong_query = [&](const std::shared_ptr<const Index>& of) -> std::string {
    Query query(of, "SELECT count(*) FROM members WHERE field = 'cls'");
    return query.next() && query.value(0).integer == 240 ? "" : "another count";
  };
  Busy busy(3, kSeed, [&](auto& random) -> std::string {
    switch (random() % 3) {
      case 0:
        return index->shard(random() % 12).num_samples == 20 ? "" : "another shard";
      case 1:
        return wrong_query(index);
      default:
        return Index::open(shards.index_path())->size() == 240 ? "" : "another index";
    }
  });
  for (int round = 0; round < 100; ++round) {
    ASSERT_EQ(in_child([&]() -> std::string {
                const AtMost limit(kHang);
                if (auto wrong = wrong_query(index); !wrong.empty()) return wrong;
                if (!kept.next() || kept.value(0).integer != 240) return "another count";
                index->validate();
                const Dataset part = data.where("sample < 7");
                return part.size() == 7 ? wrong_with(part) : "another view";
              }),
              "")
        << "round " << round << ", seed " << kSeed;
  }
  EXPECT_EQ(busy.end(), "");
}

TEST_F(DatasetBusyForkTest, AQueryWithoutAnEndLetsTheParentFork) {
  const Shards shards(2, 20);
  const auto index = Index::open(shards.index_path());
  // Run in a child, so that a hang of the forking thread also fails the test.
  EXPECT_EQ(in_child([&]() -> std::string {
              const AtMost limit(kHang);
              std::atomic<bool> begun{false}, cancel{false};
              std::thread endless([&] {
                Query query(index,
                            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
                            "SELECT count(*) FROM n");
                query.set_cancel(&cancel);
                begun = true;
                EXPECT_THROW(query.next(), Cancelled);
              });
              while (!begun) std::this_thread::yield();
              std::string said;
              for (int round = 0; round < 20 && said.empty(); ++round) {
                said = in_child([&]() -> std::string {
                  const AtMost inner_limit(kHang);
                  return Query(index, "SELECT 1 FROM samples").next() ? "" : "no row";
                });
              }
              cancel = true;
              endless.join();
              return said;
            }),
            "");
}

/// Adds many rows of skipped members to the catalogue of an index.
void add_skipped(const std::string& index, std::uint64_t count) {
  const IndexFiles files(index);
  CatalogueWriter writer(index, "");
  const CatalogueMeta& before = files.catalogue().meta();
  for (std::uint64_t i = 0; i < before.summary.num_shards; ++i) {
    writer.add_shard(files.catalogue().shard(i));
  }
  for (const Index::Summary::Field& field : files.catalogue().fields()) writer.add_field(field);
  for (std::uint64_t i = 0; i < count; ++i) {
    writer.add_skipped({.shard = 0, .name = "m" + std::to_string(i), .reason = "a test"});
  }
  CatalogueMeta meta = before;
  meta.summary.num_skipped = count;
  writer.finish(std::move(meta));
  writer.commit();
}

/// Returns how many times this thread can fork while another thread runs `work` once.
int forks_beside(const std::function<void()>& work) {
  std::atomic<bool> begun{false}, done{false};
  std::thread busy([&] {
    begun = true;
    work();
    done = true;
  });
  while (!begun) std::this_thread::yield();
  int forks = 0;
  for (; !done; ++forks) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
  }
  busy.join();
  return forks;
}

TEST_F(DatasetBusyForkTest, ALargeCatalogueThatIsReadWholeDoesNotHoldUpFork) {
  const Shards shards(1, 5);
  add_skipped(shards.index_path(), 300'000);
  const auto index = Index::open(shards.index_path());
  const std::map<std::string, std::function<void()>> all = {
      {"validate", [&] { index->validate(); }},
      {"skipped", [&] { EXPECT_EQ(index->skipped(UINT64_MAX).size(), 300'000U); }},
      {"query", [&] { Query(index, "SELECT count(*) FROM skipped").next(); }}};
  for (const auto& [name, work] : all) {
    // If this thread can fork only about once per table, a lock was held while all the table's rows
    // were read. A thread that is rarely scheduled also forks less often, so take the maximum.
    constexpr int kMany = 40;
    int most = 0;
    for (int round = 0; round < 50 && most < kMany; ++round) {
      most = std::max(most, forks_beside(work));
    }
    EXPECT_GE(most, kMany) << name;
  }
}

TEST_F(DatasetBusyForkTest, ChildrenOfAChildReadAMixture) {
  const Shards one(4, 20), other(4, 20);
  const Dataset::Options options{.max_open_shards = 2};
  const MixedDataset data(
      {Dataset::open(one.index_path(), options), Dataset::open(other.index_path(), options)});
  const auto wrong_mixed = [&](std::mt19937_64& random) -> std::string {
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t number = random() % data.size();
      const Sample sample = data[number];
      if (sample["bin"] != test::content_of(number % 80)) return "other bytes";
    }
    return {};
  };
  Busy busy(2, kSeed, wrong_mixed);
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(in_child([&]() -> std::string {
                const AtMost limit(kHang);
                Busy own(2, kSeed + 10, wrong_mixed);
                for (int inner = 0; inner < 4; ++inner) {
                  const std::string said = in_child([&]() -> std::string {
                    const AtMost inner_limit(kHang);
                    std::mt19937_64 random(kSeed + 20);
                    return wrong_mixed(random);
                  });
                  if (!said.empty()) return "grandchild: " + said;
                }
                return own.end();
              }),
              "")
        << "round " << round << ", seed " << kSeed;
  }
  EXPECT_EQ(busy.end(), "");
}

/// Shards behind a cache with room for a third of them, and threads that fetch ahead.
class CachedWorld {
 public:
  CachedWorld(const std::vector<std::string>& sources, const std::string& directory,
              std::uint64_t budget_bytes, std::shared_ptr<const Fetchers> fetchers)
      : cache_(ShardCache::open({.directory = directory + "/cache",
                                 .budget_bytes = budget_bytes,
                                 .fetchers = fetchers})),
        data_(Dataset::open(index(sources, directory + "/cached.idx", fetchers),
                            {.max_open_shards = 3, .cache = cache_})),
        sampler_(data_, {.seed = 5, .kind = Sharded{}}, {}),
        prefetcher_(data_, sampler_, {.fetch_threads = 2, .max_ahead = 4}) {}

  const Dataset& data() const { return data_; }
  ShardCache& cache() const { return *cache_; }

  /// Reads the next sample in the order that the prefetcher follows. Threads: one.
  std::string read_on() {
    const auto next = sampler_.next();
    if (!next) {
      sampler_.set_epoch(sampler_.epoch() + 1);
      prefetcher_.begin_epoch(sampler_);
      return {};
    }
    std::string wrong = wrong_with(data_, *next);
    prefetcher_.reached(sampler_.position());
    return wrong;
  }

 private:
  static std::string index(const std::vector<std::string>& sources, const std::string& path,
                           const std::shared_ptr<const Fetchers>& fetchers) {
    build_index(path, sources, {.threads = 1, .remote = make_remote_access(fetchers, nullptr)});
    return path;
  }

  const std::shared_ptr<ShardCache> cache_;
  const Dataset data_;
  shardwise::detail::SlotSampler sampler_;
  ShardPrefetcher prefetcher_;
};

/// A static object, which exit() also destroys in the children.
std::optional<CachedWorld> world;

/// Like PyTorch's DataLoader: forks several workers, which together read all samples.
void fork_workers(int num_workers, bool with_exit, int round) {
  std::fflush(nullptr);
  std::vector<pid_t> workers;
  for (int worker = 0; worker < num_workers; ++worker) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      ::alarm(kHang);
      int status = 0;
      try {
        const Dataset& data = world->data();
        for (std::uint64_t i = static_cast<std::uint64_t>(worker); i < data.size(); i += 7) {
          if (!wrong_with(data, i).empty()) status = 1;
        }
        for (int i = 0; i < 60; ++i) {
          if (!world->read_on().empty()) status = 1;  // starts the child's own threads
        }
      } catch (const std::exception& e) {
        std::fprintf(stderr, "worker %d: %s\n", worker, e.what());
        status = 2;
      }
      if (with_exit) std::exit(status);
      ::_exit(status);
    }
    workers.push_back(pid);
  }
  for (const pid_t pid : workers) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0) << "round " << round << (WIFSIGNALED(status) ? ": a signal" : "");
  }
}

void fork_workers_of_a_busy_world(int rounds) {
  // Sampler and prefetcher may be used by one thread only, so only the forking thread uses them.
  Busy busy(2, 11, [&](auto& own) { return wrong_with_some(world->data(), own, 1); });
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 40; ++i) ASSERT_EQ(world->read_on(), "");
    fork_workers(4, round % 2 == 1 && !test::kSanitized, round);
  }
  EXPECT_EQ(busy.end(), "");
  EXPECT_EQ(wrong_with(world->data()), "");
  EXPECT_GT(world->cache().stats().evicted, 0u);
  world.reset();
}

TEST_F(DatasetBusyForkTest, WorkersReadRemoteShardsThroughACacheWithPrefetchThreads) {
  if (test::kAllocatorMayBeLockedInChild) GTEST_SKIP() << kWhySkipped;
  test::TestHttpServer server;
  const Shards shards(12, 20);
  std::vector<std::string> urls;
  for (std::uint64_t i = 0; i < 12; ++i) {
    server.serve("/" + shards.name(i), {.body = test::read_file(shards.path(i))});
    urls.push_back(server.url("/" + shards.name(i)));
  }
  const std::uint64_t one = test::read_file(shards.path(11)).size();
  world.emplace(urls, shards.dir() / ".", 5 * one,
                std::make_shared<const Fetchers>(test::quick_options()));
  fork_workers_of_a_busy_world(8);
}

TEST_F(DatasetBusyForkTest, WorkersReadCompressedShardsThroughACacheWithPrefetchThreads) {
  if (test::kAllocatorMayBeLockedInChild) GTEST_SKIP() << kWhySkipped;
  const Shards shards(12, 20);
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const std::string path = shards.path(i) + ".zst";
    test::write_file(path, test::compress(test::read_file(shards.path(i)), Compression::kZstd));
    paths.push_back(path);
  }
  const std::uint64_t one = test::read_file(shards.path(11)).size();
  world.emplace(paths, shards.dir() / ".", 5 * one, std::make_shared<const Fetchers>());
  fork_workers_of_a_busy_world(8);
}

// The parent's pin of a shard does not count for the child, which has its own.
TEST_F(DatasetBusyForkTest, AChildHoldsTheShardsThatItMapped) {
  const Shards shards(3, 20);
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::string path = shards.path(i) + ".zst";
    test::write_file(path, test::compress(test::read_file(shards.path(i)), Compression::kZstd));
    paths.push_back(path);
  }
  // Read without a prefetcher, because a prefetcher pins the shards that it fetched ahead.
  const std::string index = shards.dir() / "held.idx";
  build_index(index, paths, {.threads = 1});
  const auto cache = ShardCache::open({.directory = shards.dir() / "cache",
                                       .budget_bytes = 1 << 20,
                                       .fetchers = std::make_shared<const Fetchers>()});
  const Dataset data = Dataset::open(index, {.max_open_shards = 3, .cache = cache});
  ASSERT_EQ(wrong_with(data, 0), "");
  const std::string name = CacheAccess::name_of(*detail::cache_request(data.shared_index(), 0));
  int to_child[2], to_parent[2];
  ASSERT_EQ(::pipe(to_child), 0);
  ASSERT_EQ(::pipe(to_parent), 0);
  const auto tell = [](const int* pipe) { return ::write(pipe[1], "+", 1) == 1; };
  const auto hear = [](const int* pipe) {
    char said = 0;
    return ::read(pipe[0], &said, 1) == 1;
  };
  test::Child child([&]() -> std::string {
    const AtMost limit(kHang);
    if (auto wrong = wrong_with(data, 25); !wrong.empty()) return wrong;
    if (!tell(to_parent) || !hear(to_child)) return "no pipe";
    DatasetAccess::close_shard(data, 0);
    if (!tell(to_parent) || !hear(to_child)) return "no pipe";
    return "";
  });
  ASSERT_TRUE(hear(to_parent));
  DatasetAccess::close_shard(data, 0);
  EXPECT_FALSE(cache->remove(name)) << "the child has it mapped";
  ASSERT_EQ(wrong_with(data, 0), "");
  ASSERT_TRUE(tell(to_child) && hear(to_parent));
  EXPECT_FALSE(cache->remove(name)) << "the child let go of the parent's hold";
  DatasetAccess::close_shard(data, 0);
  EXPECT_TRUE(cache->remove(name)) << "the child kept what it let go of";
  ASSERT_TRUE(tell(to_child));
  EXPECT_EQ(child.wait(), "");
  for (const int* pipe : {to_child, to_parent}) {
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
}

}  // namespace
}  // namespace shardwise
