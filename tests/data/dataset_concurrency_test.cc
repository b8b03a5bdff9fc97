#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "data/shards.h"
#include "shardwise/data/dataset.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::Child;
using test::key_of;
using test::Shards;
using test::wrong_with;

TEST(DatasetConcurrencyTest, ThreadsReadRightBytesThroughAPoolMuchTooSmall) {
  constexpr std::uint64_t kSeed = 12345;
  constexpr unsigned kThreads = 8;
  RecordProperty("seed", std::to_string(kSeed));
  const Shards shards(12, 20);
  const Dataset data = Dataset::open(shards.index_path(), {.max_open_shards = 2});
  std::mutex mutex;
  std::string wrong;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t, copy = data] {
      std::mt19937_64 random(kSeed + t);
      std::vector<Sample> held;
      for (int round = 0; round < 600; ++round) {
        const std::uint64_t i = random() % copy.size();
        std::string found = wrong_with(copy, i);
        const auto by_key = copy.find(key_of(i));
        if (!by_key || by_key->index() != i) found = "found another sample by key";
        if (held.size() < 3) {
          held.push_back(copy[i]);
        } else {
          const Sample& old = held[random() % held.size()];
          if (old["bin"] != test::content_of(old.index())) found = "a held view changed";
          held[random() % held.size()] = copy[i];
        }
        if (!found.empty()) {
          const std::lock_guard lock(mutex);
          wrong = found;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, "") << "seed " << kSeed;
  EXPECT_GT(data.pool_stats().evicted, 0U);
}

TEST(DatasetConcurrencyTest, TheLastHandleMayGoInAnyThread) {
  const Shards shards(3, 10);
  for (int round = 0; round < 30; ++round) {
    auto data = std::make_unique<Dataset>(Dataset::open(shards.index_path()));
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&wrong, t, sample = (*data)[t * 7]] {
        if (sample["bin"] != test::content_of(t * 7)) ++wrong;
      });
    }
    data.reset();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }
}

// Fault under test: tests/faults.md 24.
class DatasetForkTest : public ::testing::TestWithParam<Dataset::Access> {};
INSTANTIATE_TEST_SUITE_P(Accesses, DatasetForkTest,
                         ::testing::Values(Dataset::Access::kMap, Dataset::Access::kRead),
                         [](const auto& param_info) {
                           return param_info.param == Dataset::Access::kMap ? "Map" : "Read";
                         });

TEST_P(DatasetForkTest, ChildrenReadEverythingAfterAFork) {
  const Shards shards(10, 20);
  const Dataset::Options options{.max_open_shards = 3, .access = GetParam()};
  const Dataset data = Dataset::open(shards.index_path(), options);
  const Sample held = data[150];
  ASSERT_EQ(wrong_with(data, 0), "");
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(std::make_unique<Child>([&]() -> std::string {
      if (held["bin"] != test::content_of(150)) return "a view from before the fork is wrong";
      if (std::string wrong = wrong_with(data); !wrong.empty()) return wrong;
      for (std::uint64_t k = 0; k < data.size(); k += 9) {
        if (data.get(key_of(k)).index() != k) return "found another sample by key";
      }
      const Dataset own = Dataset::open(shards.index_path(), options);
      return wrong_with(own);
    }));
  }
  EXPECT_EQ(wrong_with(data), "");
  for (const auto& child : children) EXPECT_EQ(child->wait(), "");
  EXPECT_EQ(wrong_with(data), "");
  data.index().validate();
  Index::open(shards.index_path())->validate();
}

}  // namespace
}  // namespace shardwise
