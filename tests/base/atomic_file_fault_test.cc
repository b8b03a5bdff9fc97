// faults.md 1, 5, 17: tests of a killed writer, a full disk and a killed lock holder.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "base/fault_point.h"
#include "base/file.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::Child;
using test::in_child;
using test::read_file;
using test::TempDir;
using test::write_file;
using ::testing::ElementsAre;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

constexpr std::string_view kFaultPoints[] = {"atomic_file.before_sync", "atomic_file.before_rename",
                                             "atomic_file.after_rename"};
std::string_view kill_at;

void kill_here(const char* name) {
  if (name == kill_at) std::raise(SIGKILL);
}

/// Returns content that shows whether it is complete: one number, many times.
std::string whole_content(int version) {
  std::string content;
  for (int i = 0; i < 20'000; ++i) content += std::to_string(version) + "\n";
  return content;
}

bool is_whole(const std::string& content) {
  return content == whole_content(std::stoi(content.substr(0, content.find('\n'))));
}

TEST(AtomicFileFaultTest, KilledAtAnyPointLeavesTheOldOrTheNewFile) {
  for (const bool replacing : {false, true}) {
    for (const std::string_view point : kFaultPoints) {
      const TempDir dir;
      if (replacing) write_file(dir / "f", "old");
      const std::string said = in_child([&]() -> std::string {
        kill_at = point;
        set_fault_handler(kill_here);
        AtomicFile file(dir / "f");
        file.file().write("new and whole");
        file.commit();
        return "was not killed";
      });
      ASSERT_EQ(said, "killed by signal 9") << point;
      sweep_temporaries(dir / "f");
      if (point == "atomic_file.after_rename") {
        EXPECT_THAT(dir.list(), ElementsAre("f"));
        EXPECT_EQ(read_file(dir / "f"), "new and whole");
      } else if (replacing) {
        EXPECT_THAT(dir.list(), ElementsAre("f")) << point;
        EXPECT_EQ(read_file(dir / "f"), "old") << point;
      } else {
        EXPECT_THAT(dir.list(), SizeIs(0)) << point;
      }
    }
  }
}

TEST(AtomicFileFaultTest, KilledAtRandomMomentsLeavesAWholeFile) {
  constexpr std::uint64_t kSeed = 77;
  RecordProperty("seed", std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  const TempDir dir;
  write_file(dir / "f", whole_content(0));
  int version = 1;
  for (int round = 0; round < 60; ++round) {
    Child writer([&]() -> std::string {
      for (;; ++version) {
        AtomicFile file(dir / "f");
        const std::string content = whole_content(version);
        std::string_view rest = content;
        for (; !rest.empty(); rest.remove_prefix(std::min<std::size_t>(rest.size(), 4096))) {
          file.file().write(rest.substr(0, 4096));
        }
        file.commit();
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    writer.kill();
    ASSERT_EQ(writer.wait(), "killed by signal 9");
    ASSERT_TRUE(is_whole(read_file(dir / "f"))) << "seed " << kSeed << ", round " << round;
    sweep_temporaries(dir / "f");
    ASSERT_THAT(dir.list(), ElementsAre("f")) << "seed " << kSeed << ", round " << round;
    version += 1000;
  }
}

TEST(AtomicFileFaultTest, AKilledWritersTemporaryStaysUntilItIsSwept) {
  const TempDir dir;
  EXPECT_EQ(in_child([&]() -> std::string {
              AtomicFile file(dir / "f");
              file.file().write("half");
              std::raise(SIGKILL);
              return {};
            }),
            "killed by signal 9");
  EXPECT_THAT(dir.list(), ElementsAre(MatchesRegex("f\\.[0-9a-f]{12}\\.tmp")));
  sweep_temporaries(dir / "f");
  EXPECT_THAT(dir.list(), SizeIs(0));
}

TEST(AtomicFileFaultTest, AFullDiskIsATypedErrorAndNoFile) {
  const TempDir dir;
  EXPECT_EQ(in_child([&]() -> std::string {
              std::signal(SIGXFSZ, SIG_IGN);
              test::set_limit(RLIMIT_FSIZE, 10'000);
              try {
                AtomicFile file(dir / "f");
                file.file().write(std::string(6'000, 'x'));
                file.file().write(std::string(6'000, 'x'));
                file.commit();
                return "no error";
              } catch (const Error& e) {
                if (e.code() != ErrorCode::kNoSpace) return std::string("wrong code: ") + e.what();
                const std::string text = e.what();
                if (text.find("cannot write: '" + dir / "f.") == std::string::npos ||
                    text.find("(ulimit -f)") == std::string::npos) {
                  return text;
                }
              }
              // The disk has space again, so the same process can write.
              AtomicFile again(dir / "f");
              again.file().write(std::string(6'000, 'y'));
              again.commit();
              return {};
            }),
            "");
  EXPECT_THAT(dir.list(), ElementsAre("f"));
  EXPECT_EQ(read_file(dir / "f"), std::string(6'000, 'y'));
}

TEST(AtomicFileFaultTest, WriteAtPastTheLimitIsATypedError) {
  const TempDir dir;
  EXPECT_EQ(in_child([&]() -> std::string {
              std::signal(SIGXFSZ, SIG_IGN);
              test::set_limit(RLIMIT_FSIZE, 1'000);
              File file = File::create_exclusive(dir / "f");
              try {
                file.write_at(900, std::string(200, 'x'));
                return "no error";
              } catch (const Error& e) {
                return e.code() == ErrorCode::kNoSpace ? "" : e.what();
              }
            }),
            "");
}

TEST(LockFaultTest, AKilledHolderLetsGo) {
  const TempDir dir;
  write_file(dir / "f", "");
  for (int round = 0; round < 20; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    Child holder([&]() -> std::string {
      File file = File::open_read(dir / "f");
      const char answer = file.try_lock() == FileLock::kTaken ? '+' : '-';
      if (::write(ready[1], &answer, 1) != 1) return "no pipe";
      for (;;) ::pause();
    });
    char answer = 0;
    ASSERT_EQ(::read(ready[0], &answer, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    ASSERT_EQ(answer, '+');
    File file = File::open_read(dir / "f");
    EXPECT_EQ(file.try_lock(), FileLock::kHeldByAnother);
    holder.kill();
    holder.wait();
    EXPECT_EQ(file.try_lock(), FileLock::kTaken);
  }
}

TEST(SweepFaultTest, SweepingAllTheTimeNeverTakesAWritersFile) {
  const TempDir dir;
  std::atomic<bool> done{false};
  std::thread sweeper([&] {
    while (!done) sweep_temporaries(dir / "f");
  });
  std::string failure;
  try {
    for (int i = 0; i < 5000 && failure.empty(); ++i) {
      AtomicFile file(dir / "f");
      if (::access(file.temporary_path().c_str(), F_OK) != 0) failure = "taken away";
      if (i % 100 == 0) file.commit();
    }
  } catch (const std::exception& e) {
    failure = e.what();
  }
  done = true;
  sweeper.join();
  EXPECT_EQ(failure, "");
  EXPECT_THAT(dir.list(), ElementsAre("f"));
}

}  // namespace
}  // namespace shardwise
