// Datasets without an index in several processes at once, some of which are killed.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <deque>
#include <map>
#include <random>
#include <thread>

#include "data/lazy_dataset.h"
#include "support/process.h"

namespace shardwise {
namespace {

using test::Child;
using test::ServedDescriptor;

std::string wrong_sample(const Dataset& data, std::mt19937_64& random) {
  for (int i = 0; i < 150; ++i) {
    const std::uint64_t number = random() % data.size();
    const std::string wrong = test::difference(data[number], number);
    if (!wrong.empty()) return "sample " + std::to_string(number) + ": " + wrong;
  }
  return "";
}

/// Returns the number of files in the cache's folder of shards, by extension.
std::map<std::string, int> files_in_cache(const ServedDescriptor& served) {
  std::map<std::string, int> found;
  for (const auto& entry : std::filesystem::directory_iterator(served.dir / "cache/shards")) {
    ++found[entry.path().extension()];
  }
  return found;
}

// Fault under test: tests/faults.md 15.
TEST(LazyProcessTest, OfManyProcessesThatStartTogetherOneFetchesAndScansEachShard) {
  constexpr int kProcesses = 6;
  struct Meeting {
    std::atomic<int> arrived{0};
    std::atomic<int> scans{0};
  };
  for (std::uint64_t round = 0; round < 4; ++round) {
    const ServedDescriptor served({9, 12, 0, 7, 20, 11, 15, 8});
    const test::Shared<Meeting> meeting;
    static Meeting* here = nullptr;
    here = meeting.operator->();
    std::deque<Child> children;
    for (std::uint64_t process = 0; process < kProcesses; ++process) {
      children.emplace_back([&, process]() -> std::string {
        set_fault_handler([](const char* name) {
          if (std::string_view(name) == "claimed_shards.scan") ++here->scans;
        });
        const Dataset lazy = served.open();
        ++here->arrived;
        while (here->arrived < kProcesses) std::this_thread::yield();
        std::mt19937_64 random(100 * round + process);
        return wrong_sample(lazy, random);
      });
    }
    for (Child& child : children) EXPECT_EQ(child.wait(), "");
    EXPECT_EQ(served.gets(), 7);
    EXPECT_EQ(here->scans, 7);
    EXPECT_EQ(files_in_cache(served),
              (std::map<std::string, int>{{".tar", 7}, {".json", 7}, {".note", 7}}));
  }
}

// Fault under test: tests/faults.md 2.
TEST(LazyProcessTest, AProcessThatIsKilledAnywhereCostsTheNextOneNothingButItsWork) {
  static int left = 0;
  const ServedDescriptor served({4, 6});
  for (int point = 1;; ++point) {
    SCOPED_TRACE("fault point " + std::to_string(point));
    left = point;
    const std::string end = test::in_child([&]() -> std::string {
      set_fault_handler([](const char*) {
        if (--left == 0) ::kill(::getpid(), SIGKILL);
      });
      const Dataset lazy = served.open();
      for (std::uint64_t i = 0; i < lazy.size(); ++i) {
        const std::string wrong = test::difference(lazy[i], i);
        if (!wrong.empty()) return wrong;
      }
      return "";
    });
    const test::CountScans scans;
    const int gets = served.gets();
    {
      const Dataset lazy = served.open();
      for (std::uint64_t i = 0; i < lazy.size(); ++i) {
        ASSERT_EQ(test::difference(lazy[i], i), "");
      }
    }
    EXPECT_LE(scans.count(), 2);
    EXPECT_LE(served.gets() - gets, 2);
    served.cache();  // removes files that were locked until the dataset was closed
    EXPECT_EQ(files_in_cache(served),
              (std::map<std::string, int>{{".tar", 2}, {".json", 2}, {".note", 2}}));
    if (end.empty()) {
      EXPECT_EQ(scans.count(), 0);
      EXPECT_EQ(served.gets(), gets);
      EXPECT_GT(point, 10) << "there are points to be killed at";
      return;
    }
    ASSERT_EQ(end, "killed by signal 9");
    std::filesystem::remove_all(served.dir / "cache");
  }
}

// Fault under test: tests/faults.md 2, 3.
TEST(LazyProcessTest, ProcessesThatAreKilledAtRandomSpoilNothingForTheOthers) {
  const std::uint64_t seed = test::random_seed();
  std::mt19937_64 random(seed);
  const ServedDescriptor served({9, 12, 0, 7, 20, 11});
  std::size_t bytes = 0;
  for (const auto& shard : served.shards) bytes += shard.bytes.size();
  // The cache is too small for all shards, so shards are evicted and fetched again.
  const auto open = [&] {
    return Dataset::open_lazily(served.path(), served.options(served.cache("cache", bytes / 2)));
  };
  for (int round = 0; round < 6; ++round) {
    static int left = 0;
    std::deque<Child> killed, others;
    for (int process = 0; process < 3; ++process) {
      left = static_cast<int>(1 + random() % 60);
      const std::uint64_t own_seed = random();
      killed.emplace_back([&, own_seed]() -> std::string {
        set_fault_handler([](const char*) {
          if (--left == 0) ::kill(::getpid(), SIGKILL);
        });
        std::mt19937_64 own(own_seed);
        return wrong_sample(open(), own);
      });
      others.emplace_back([&, own_seed]() -> std::string {
        std::mt19937_64 own(own_seed + 1);
        return wrong_sample(open(), own);
      });
    }
    for (Child& child : killed) {
      const std::string end = child.wait();
      EXPECT_TRUE(end.empty() || end == "killed by signal 9") << end;
    }
    for (Child& child : others) EXPECT_EQ(child.wait(), "");
  }
  EXPECT_EQ(wrong_sample(open(), random), "");
}

TEST(LazyProcessTest, AForkedChildGoesOnWithWhatTheParentOpened) {
  const ServedDescriptor served;
  const Dataset lazy = served.open();
  EXPECT_EQ(test::difference(lazy[7], 7), "");
  const Sample held = lazy[8];
  EXPECT_EQ(test::in_child([&]() -> std::string {
              std::string wrong = test::difference(held, 8);
              for (std::uint64_t i = 0; wrong.empty() && i < lazy.size(); ++i) {
                wrong = test::difference(lazy[i], i);
              }
              return wrong;
            }),
            "");
  const test::CountScans scans;
  for (std::uint64_t i = 0; i < lazy.size(); ++i) EXPECT_EQ(test::difference(lazy[i], i), "");
  EXPECT_EQ(scans.count(), 0) << "the child kept what it found";
  EXPECT_EQ(served.gets(), 5);
}

}  // namespace
}  // namespace shardwise
