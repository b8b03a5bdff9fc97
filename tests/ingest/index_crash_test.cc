// faults.md 1 and 5: kill -9 and a full disk during a build.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "base/fault_point.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/relocate.h"
#include "support/shards.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::TempDir;

constexpr int kOldShards = 2;
constexpr int kNewShards = 6;

/// Options with a journal that is written after every shard.
const BuildOptions kJournaled = [] {
  BuildOptions options;
  options.threads = 2;
  options.journal_bytes = 1;
  return options;
}();

/// Two states of one index: one with the first shards, one with all shards.
struct TwoStates {
  TempDir dir;
  std::string index = dir / "t.idx";
  std::vector<std::string> new_shards = test::write_shards(dir, kNewShards, 30);
  std::vector<std::string> old_shards{new_shards.begin(), new_shards.begin() + kOldShards};

  void build_old() const { build_index(index, old_shards); }

  /// Checks the state after a crash: either the old or the new index is complete, and the next
  /// build removes the leftovers.
  void expect_old_or_new(const std::string& where) const {
    {
      const auto opened = Index::open(index);
      opened->validate();
      const std::uint64_t size = opened->size();
      EXPECT_TRUE(size == kOldShards * 30 || size == kNewShards * 30) << where << ": " << size;
    }
    build_index(index, new_shards);
    Index::open(index)->validate();
    EXPECT_EQ(dir.list().size(), std::size_t{kNewShards} + 2) << where << ": strays were left";
  }
};

/// Runs `child` in a forked process, and waits for it.
/// @return  the wait status.
template <class Child>
int in_child(Child child, int kill_after_us = -1) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    try {
      child();
      ::_exit(0);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "child: %s\n", e.what());
      ::_exit(1);
    }
  }
  if (kill_after_us >= 0) {
    ::usleep(static_cast<useconds_t>(kill_after_us));
    ::kill(pid, SIGKILL);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

std::atomic<int> countdown{0};

void die_at_zero(const char*) {
  if (countdown.fetch_sub(1) == 0) ::raise(SIGKILL);
}

TEST(IndexCrashTest, KilledAtEveryFaultPointLeavesTheOldOrTheNewIndex) {
  const TwoStates states;
  bool finished = false;
  int points = 0;
  for (int n = 0; !finished; ++n) {
    std::filesystem::remove(states.index);
    states.build_old();
    const int status = in_child([&] {
      countdown = n;
      set_fault_handler(die_at_zero);
      build_index(states.index, states.new_shards, kJournaled);
    });
    finished = WIFEXITED(status);
    if (finished) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
    } else {
      ++points;
    }
    states.expect_old_or_new("fault point " + std::to_string(n));
  }
  EXPECT_GE(points, 15) << "the build passed fewer fault points than it has";
}

TEST(IndexCrashTest, AMergeThatIsKilledAtEveryFaultPointLeavesTheOldOrTheNewIndex) {
  const TwoStates states;
  const TempDir parts_dir;
  std::vector<std::string> parts;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    BuildOptions options;
    options.part = BuildOptions::Part{i, 3};
    parts.push_back(parts_dir / ("p" + std::to_string(i) + ".idx"));
    build_index(parts.back(), states.new_shards, options);
  }
  int points = 0;
  for (bool finished = false; !finished;) {
    std::filesystem::remove(states.index);
    states.build_old();
    const int status = in_child([&] {
      countdown = points;
      set_fault_handler(die_at_zero);
      merge_indexes(states.index, parts);
    });
    finished = WIFEXITED(status);
    if (finished) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      EXPECT_EQ(Index::open(states.index)->size(), std::uint64_t{kNewShards} * 30);
    }
    states.expect_old_or_new("fault point " + std::to_string(points));
    ++points;
  }
  EXPECT_GE(points, 15) << "the merge passed fewer fault points than it has";
}

TEST(IndexCrashTest, ARelocationThatIsKilledAtEveryFaultPointLeavesTheOldOrTheNewNames) {
  namespace fs = std::filesystem;
  const TempDir dir;
  const std::string index = dir / "t.idx", old_place = dir / "old", new_place = dir / "new";
  fs::create_directory(old_place);
  std::vector<std::string> shards;
  for (const std::string& shard : test::write_shards(dir, kOldShards, 30)) {
    shards.push_back(old_place + "/" + fs::path(shard).filename().string());
    fs::rename(shard, shards.back());
  }
  int points = 0;
  for (bool finished = false; !finished; ++points) {
    build_index(index, shards);
    fs::rename(old_place, new_place);
    const auto relocate = [&] { return relocate_index(index, {{old_place, new_place}}); };
    const int status = in_child([&] {
      countdown = points;
      set_fault_handler(die_at_zero);
      relocate();
    });
    finished = WIFEXITED(status);
    const auto opened = Index::open(index);
    opened->validate();
    const bool is_old = opened->shard(0).path.starts_with(old_place);
    for (std::uint64_t i = 0; i < opened->num_shards(); ++i) {
      EXPECT_TRUE(opened->shard(i).path.starts_with(is_old ? old_place : new_place));
    }
    EXPECT_FALSE(finished && is_old);
    if (is_old) {
      EXPECT_EQ(relocate().shards_scanned, 0U);
    }
    EXPECT_EQ(update_index(index).shards_moved, 0U);
    EXPECT_EQ(dir.list().size(), 3U) << "strays were left at fault point " << points;
    fs::rename(new_place, old_place);
  }
  EXPECT_GE(points, 5) << "the relocation passed fewer fault points than it has";
}

TEST(IndexCrashTest, KilledAtRandomLeavesTheOldOrTheNewIndex) {
  std::mt19937_64 random(test::random_seed());
  const TwoStates states;
  const auto build = [&] { build_index(states.index, states.new_shards, kJournaled); };
  // Take the shortest time of a whole build, because a busy machine delays some builds.
  auto whole = std::chrono::microseconds::max();
  int killed = 0;
  const int rounds = test::repeats(60, 1000);
  for (int round = 0; round < rounds || killed < rounds / 10; ++round) {
    std::filesystem::remove(states.index);
    states.build_old();
    if (round % 20 == 0) {
      const auto begin = std::chrono::steady_clock::now();
      in_child(build);
      whole = std::min(whole, std::chrono::duration_cast<std::chrono::microseconds>(
                                  std::chrono::steady_clock::now() - begin));
      std::filesystem::remove(states.index);
      states.build_old();
    }
    const int status = in_child(
        build, static_cast<int>(random() % static_cast<std::uint64_t>(whole.count() * 5 / 4)));
    killed += WIFSIGNALED(status) ? 1 : 0;
    states.expect_old_or_new("round " + std::to_string(round));
    if (HasFailure()) break;
  }
  std::printf("%d of %d builds were killed before their end\n", killed, rounds);
}

TEST(IndexCrashTest, AFullDiskIsATypedErrorAndTheOldIndexStays) {
  const TwoStates states;
  bool finished = false;
  int refused = 0;
  for (rlim_t limit = 0; !finished; limit += 512) {
    std::filesystem::remove(states.index);
    states.build_old();
    const int status = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit files{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &files);
      try {
        build_index(states.index, states.new_shards, kJournaled);
      } catch (const Error& e) {
        ::_exit(e.code() == ErrorCode::kNoSpace &&
                        std::string(e.what()).find("(ulimit -f)") != std::string::npos
                    ? 2
                    : 3);
      }
    });
    ASSERT_TRUE(WIFEXITED(status));
    finished = WEXITSTATUS(status) == 0;
    if (!finished) {
      EXPECT_EQ(WEXITSTATUS(status), 2) << "limit " << limit;
      ++refused;
      EXPECT_EQ(Index::open(states.index)->size(), std::uint64_t{kOldShards} * 30);
    }
    states.expect_old_or_new("limit " + std::to_string(limit));
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace shardwise
