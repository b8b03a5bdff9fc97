// Many processes share one cache: each shard is fetched exactly once, even if processes are killed.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <random>
#include <thread>

#include "base/fault_point.h"
#include "base/file.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_locks.h"
#include "storage/cache_request.h"
#include "storage/fetch_support.h"
#include "storage/test_http_server.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::Child;
using test::TempDir;
using ::testing::AllOf;
using ::testing::IsEmpty;

constexpr std::size_t kShardBytes = 50'000;

std::string body(int i) { return test::some_bytes(kShardBytes, static_cast<std::uint32_t>(i + 1)); }
std::string path(int i) { return "/" + std::to_string(i) + ".tar"; }

class ShardCacheProcessTest : public ::testing::Test {
 protected:
  ShardCache::Options options(std::uint64_t budget_bytes) const {
    return {.directory = dir_ / "cache",
            .budget_bytes = budget_bytes,
            .fetchers = std::make_shared<const Fetchers>(test::quick_options())};
  }
  CacheRequest request(int i) const {
    return {.source = {.url = server_.url(path(i)), .size_bytes = kShardBytes}};
  }
  std::vector<std::string> temporaries() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache/shards")) {
      if (entry.path().extension() == ".tmp") found.push_back(entry.path().filename());
    }
    return found;
  }

  struct Meeting {
    std::atomic<int> arrived{0};
  };

  TempDir dir_;
  test::TestHttpServer server_;
};

// Fault under test: tests/faults.md 15.
TEST_F(ShardCacheProcessTest, EightProcessesThatWantOneColdShardFetchItOnce) {
  constexpr int kProcesses = 8;
  constexpr int kRounds = 200;
  for (int i = 0; i < kRounds; ++i) server_.serve(path(i), {.body = body(i)});
  const test::Shared<Meeting> meeting;
  std::deque<Child> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.emplace_back([&]() -> std::string {
      const auto cache = ShardCache::open(options(kRounds * kShardBytes));
      for (int i = 0; i < kRounds; ++i) {
        ++meeting->arrived;
        while (meeting->arrived < kProcesses * (i + 1)) std::this_thread::yield();
        if (test::read_file(CacheAccess::get(*cache, request(i)).path()) != body(i))
          return "wrong bytes";
      }
      return "";
    });
  }
  for (Child& child : children) EXPECT_EQ(child.wait(), "");
  int once = 0;
  for (int i = 0; i < kRounds; ++i) once += server_.gets(path(i)) == 1 ? 1 : 0;
  EXPECT_EQ(once, kRounds);
}

// Fault under test: tests/faults.md 18.
TEST_F(ShardCacheProcessTest, ALockFileThatIsRemovedCostsFetchesButNoBytes) {
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) server_.serve(path(i), {.body = body(i)});
  ShardCache::open(options(10 * kShardBytes));
  // They begin when all are forked, because a child that is forked while the server answers may
  // find the sanitizer's allocator locked.
  constexpr int kProcesses = 4;
  const test::Shared<Meeting> meeting;
  std::deque<Child> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.emplace_back([&]() -> std::string {
      ++meeting->arrived;
      while (meeting->arrived < kProcesses) std::this_thread::yield();
      const auto cache = ShardCache::open(options(10 * kShardBytes));
      for (int i = 0, gone = 0; i < kRounds; ++i) {
        // Once the locks file is removed, other processes do not see that the shard is in use, so
        // they may evict it before it is opened.
        const CachedShard shard = CacheAccess::get(*cache, request(i));
        try {
          if (test::read_file(shard.path()) != body(i)) return "wrong bytes";
        } catch (const std::runtime_error& e) {
          if (++gone > 1000) return e.what();
          --i;
        }
      }
      return "";
    });
  }
  std::atomic<bool> done{false};
  std::thread admin([&] {
    while (!done) {
      ::unlink((dir_ / "cache/locks").c_str());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (Child& child : children) EXPECT_EQ(child.wait(), "");
  done = true;
  admin.join();
}

// Fault under test: tests/faults.md 53.
TEST_F(ShardCacheProcessTest, WhoeverFetchesIsWaitedForHoweverSilentItIs) {
  const auto hangs = std::make_shared<std::atomic<bool>>(true);
  server_.serve(path(0), {.body = body(0), .hangs = hangs});
  const auto get = [&](const ShardCache::Options& with) {
    return test::read_file(CacheAccess::get(*ShardCache::open(with), request(0)).path());
  };
  ShardCache::Options impatient = options(2 * kShardBytes);
  Child fetching([&]() -> std::string { return get(impatient) == body(0) ? "" : "wrong bytes"; });
  while (server_.gets(path(0)) == 0) std::this_thread::yield();
  impatient.wait_timeout = std::chrono::milliseconds(1);
  std::vector<std::string> words;
  impatient.on_wait = [&](const std::string& url, std::chrono::milliseconds waited,
                          const std::string& holder) {
    EXPECT_THAT(url, ::testing::HasSubstr(path(0)));
    EXPECT_GE(waited, std::chrono::seconds(1));
    words.push_back(holder);
    *hangs = false;
  };
  EXPECT_EQ(get(impatient), body(0));
  EXPECT_EQ(fetching.wait(), "");
  EXPECT_EQ(server_.gets(path(0)), 1);
  ASSERT_THAT(words, ::testing::SizeIs(1));
  EXPECT_THAT(words[0], ::testing::MatchesRegex("process [0-9]+ \\(.*\\)"));
}

// Fault under test: tests/faults.md 53.
TEST_F(ShardCacheProcessTest, AFetchThatIsStoppedIsNamedAndTheWaitCanBeCancelled) {
  server_.serve(path(0), {.body = body(0), .stall_after = 1000});
  ShardCache::Options first = options(2 * kShardBytes);
  Child fetching([&]() -> std::string {
    CacheAccess::get(*ShardCache::open(first), request(0));
    return "";
  });
  while (server_.gets(path(0)) == 0) std::this_thread::yield();
  fetching.stop();

  const std::string who = "process " + std::to_string(fetching.pid()) + " (";
  ShardCache::Options impatient = options(2 * kShardBytes);
  impatient.wait_timeout = std::chrono::milliseconds(500);
  std::vector<std::string> words;
  impatient.on_wait = [&](const std::string&, std::chrono::milliseconds,
                          const std::string& holder) { words.push_back(holder); };
  const auto cache = ShardCache::open(impatient);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(
        test::error_text([&] { CacheAccess::get(*cache, request(0)); }),
        AllOf(::testing::HasSubstr("is suspended"), ::testing::HasSubstr(path(0) + "' (" + who),
              ::testing::HasSubstr("which is suspended"),
              ::testing::HasSubstr("kill -CONT " + std::to_string(fetching.pid()))));
  }
  EXPECT_EQ(cache->stats().waits, 2U);
  ASSERT_THAT(words, ::testing::SizeIs(1)) << "it is said once a shard";
  EXPECT_THAT(words[0], AllOf(::testing::StartsWith(who), ::testing::HasSubstr("suspended")));

  std::atomic<bool> cancel{false};
  ShardCache::Options cancelling = options(2 * kShardBytes);
  cancelling.on_wait = [&](const std::string&, std::chrono::milliseconds, const std::string&) {
    cancel = true;
  };
  CacheRequest wanted = request(0);
  wanted.cancel = &cancel;
  EXPECT_EQ(test::error_code([&] { CacheAccess::get(*ShardCache::open(cancelling), wanted); }),
            ErrorCode::kCancelled);
  fetching.kill();
  fetching.wait();
}

// faults.md 53: if the fetching process is not visible, e.g. in another container, its files are
// watched.
TEST_F(ShardCacheProcessTest, AFetchThatCannotBeSeenIsGivenThePatienceOfThisProcess) {
  Fetchers::Options quick = test::quick_options();
  quick.retry_for = std::chrono::milliseconds(200);
  ShardCache::Options impatient = options(2 * kShardBytes);
  impatient.fetchers = std::make_shared<const Fetchers>(quick);
  impatient.wait_timeout = std::chrono::milliseconds(1);
  std::vector<std::string> words;
  impatient.on_wait = [&](const std::string&, std::chrono::milliseconds,
                          const std::string& holder) { words.push_back(holder); };
  const auto cache = ShardCache::open(impatient);
  // A POSIX lock also excludes other processes, but the kernel's list of locks does not show it as
  // a lock of an open file.
  struct Held {
    std::atomic<bool> is{false};
  };
  const test::Shared<Held> held;
  Child holder([&]() -> std::string {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(detail::fetch_byte(CacheAccess::name_of(request(0))));
    lock.l_len = 1;
    const File locks = File::open_or_create(dir_ / "cache/locks");
    if (::fcntl(locks.fd(), F_SETLK, &lock) != 0) return "no lock";
    held->is = true;
    for (;;) ::pause();
  });
  while (!held->is) std::this_thread::yield();
  EXPECT_THAT(test::error_text([&] { CacheAccess::get(*cache, request(0)); }),
              ::testing::HasSubstr("makes no progress"));
  EXPECT_THAT(words, ::testing::IsEmpty()) << "it took less than a second";
}

/// Kills the process when it reaches the fault point for the n-th time.
struct KillPoint {
  static inline std::string name;
  static inline int countdown = 0;
  static void handle(const char* at) {
    if (name == at && --countdown == 0) ::kill(::getpid(), SIGKILL);
  }
};

// Fault under test: tests/faults.md 2, 3, 17.
TEST_F(ShardCacheProcessTest, AProcessKilledAnywhereLeavesNothingButRoom) {
  for (int i = 0; i < 6; ++i) server_.serve(path(i), {.body = body(i)});
  for (const char* point :
       {"shard_cache.temporary_made", "shard_cache.written", "shard_cache.checked",
        "shard_cache.before_sync", "shard_cache.before_rename", "shard_cache.named",
        "shard_cache.before_unlink", "shard_cache.between_unlinks", "shard_cache.in_doubt",
        "shard_cache.not_counted"}) {
    for (int n = 1; n < 50; ++n) {
      std::filesystem::remove_all(dir_ / "cache");
      Child child([&]() -> std::string {
        KillPoint::name = point;
        KillPoint::countdown = n;
        const auto cache = ShardCache::open(options(2 * kShardBytes));
        set_fault_handler(&KillPoint::handle);
        for (int i = 0; i < 5; ++i) CacheAccess::get(*cache, request(i));
        return "not killed";
      });
      const std::string end = child.wait();
      const auto cache = ShardCache::open(options(2 * kShardBytes));
      for (const int i : {0, 4, 5}) {
        ASSERT_EQ(test::read_file(CacheAccess::get(*cache, request(i)).path()), body(i))
            << point << " " << n;
      }
      ASSERT_LE(cache->used_bytes(), 2 * kShardBytes) << point << " " << n;
      ASSERT_THAT(temporaries(), IsEmpty()) << point << " " << n;
      const ShardCache::Check check = cache->verify();
      ASSERT_THAT(check.damaged, IsEmpty());
      ASSERT_THAT(check.unknown, IsEmpty());
      if (end == "not killed") {
        EXPECT_GT(n, 1) << point << " was never come by";
        break;
      }
    }
  }
}

TEST_F(ShardCacheProcessTest, ReadersThatAreKilledAtRandomSpoilNothing) {
  constexpr int kReaders = 4;
  constexpr int kShards = 12;
  constexpr std::uint64_t kBudget = 4 * kShardBytes;
  for (int i = 0; i < kShards; ++i) {
    server_.serve(
        path(i),
        {.body = body(i), .drip_bytes = 10'000, .drip_wait = std::chrono::milliseconds(1)});
  }
  const auto reader = [&](std::uint32_t seed) {
    return [this, seed]() -> std::string {
      std::mt19937 random(seed);
      const auto cache = ShardCache::open(options(kBudget));
      for (;;) {
        const int i = static_cast<int>(random() % kShards);
        if (test::read_file(CacheAccess::get(*cache, request(i)).path()) != body(i)) {
          return "wrong bytes in " + path(i);
        }
      }
    };
  };
  std::mt19937 random(20261121);
  std::array<std::unique_ptr<Child>, kReaders> readers;
  for (auto& child : readers)
    child = std::make_unique<Child>(reader(static_cast<std::uint32_t>(random())));
  ShardCache::open(options(kBudget));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(test::repeats(3, 300));
  std::uint64_t most = 0;
  int kills = 0;
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
    auto& victim = readers[random() % kReaders];
    victim->kill();
    ASSERT_EQ(victim->wait(), "killed by signal 9");
    ++kills;
    victim = std::make_unique<Child>(reader(static_cast<std::uint32_t>(random())));
    std::uint64_t used = 0;
    for (const auto& entry : std::filesystem::directory_iterator(
             dir_ / "cache/shards", std::filesystem::directory_options::skip_permission_denied)) {
      std::error_code gone;
      if (const auto size = entry.file_size(gone); !gone) used += size;
    }
    most = std::max(most, used);
  }
  for (auto& child : readers) {
    child->kill();
    child->wait();
  }
  // Each process may exceed the budget by the shard that it fetches. The temporary files of killed
  // processes take the place of such a shard until room is made, which removes them.
  EXPECT_LE(most, kBudget + kReaders * (kShardBytes + 1000)) << kills << " kills";
  RecordProperty("kills", kills);
  const auto cache = ShardCache::open(options(kBudget));
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_LE(cache->used_bytes(), kBudget);
  EXPECT_THAT(cache->verify().damaged, IsEmpty());
  for (int i = 0; i < kShards; ++i) {
    EXPECT_EQ(test::read_file(CacheAccess::get(*cache, request(i)).path()), body(i));
  }
}

// Fault under test: tests/faults.md 16.
TEST_F(ShardCacheProcessTest, WhatOneProcessMapsAnotherDoesNotEvict) {
  for (int i = 0; i < 6; ++i) server_.serve(path(i), {.body = body(i)});
  const auto cache = ShardCache::open(options(2 * kShardBytes));
  const CachedShard held = CacheAccess::get(*cache, request(0));
  EXPECT_EQ(test::in_child([&]() -> std::string {
              const auto other = ShardCache::open(options(2 * kShardBytes));
              for (const int i : {1, 2, 3, 4}) CacheAccess::get(*other, request(i));
              return other->remove(CacheAccess::name_of(request(0))) ? "removed" : "";
            }),
            "");
  EXPECT_EQ(test::read_file(held.path()), body(0));
  EXPECT_EQ(server_.gets(path(0)), 1);
}

}  // namespace
}  // namespace shardwise
