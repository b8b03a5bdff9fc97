#include "base/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error_types.h"
#include "base/file.h"
#include "base/ordered_pipeline.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::AtMost;
using test::in_child;
using test::TempDir;
using test::write_file;

/// Threads that call `body` repeatedly until this object is destroyed.
class Busy {
 public:
  Busy(unsigned count, const std::function<void()>& body) {
    for (unsigned i = 0; i < count; ++i) {
      threads_.emplace_back([this, body] {
        while (!stop_) body();
      });
    }
  }
  ~Busy() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Fault under test: tests/faults.md 50.
TEST(ForkTest, MutexesAreFreeInChildrenOfABusyParent) {
  Mutex first, second;
  std::uint64_t a = 0, b = 0;  // guarded by both mutexes
  const Busy busy(3, [&] {
    const Lock lock(first);
    ++a;
    const Lock inner(second);
    ++b;
  });
  // Another thread locks only `second`. If fork() waited for each mutex separately, these orders
  // could deadlock.
  const Busy other(1, [&] { const Lock lock(second); });
  for (int round = 0; round < 300; ++round) {
    ASSERT_EQ(in_child([&]() -> std::string {
                const AtMost limit(60);
                const Lock lock(second);
                const Lock inner(first);
                return a == b ? "" : "forked in the middle of a section";
              }),
              "")
        << "round " << round;
  }
}

TEST(ForkTest, ForksOfSeveralThreadsAndOfChildren) {
  Mutex mutex;
  std::atomic<int> wrong{0};
  {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int round = 0; round < 30; ++round) {
          const std::string said = in_child([&]() -> std::string {
            const AtMost limit(60);
            const Lock lock(mutex);
            return in_child([&]() -> std::string {
              const AtMost inner_limit(60);
              const ForkSection section;
              return "";
            });
          });
          if (!said.empty()) ++wrong;
          const Lock lock(mutex);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

TEST(ForkTest, EachProcessHasAGenerationOfItsOwn) {
  const std::uint64_t here = process_generation();
  EXPECT_EQ(in_child([&]() -> std::string {
              if (process_generation() == here) return "the parent's";
              const std::uint64_t child = process_generation();
              return in_child([&]() -> std::string {
                return process_generation() == here || process_generation() == child ? "an older"
                                                                                     : "";
              });
            }),
            "");
  EXPECT_EQ(process_generation(), here);
}

// With a std::condition_variable for which threads of the parent wait, the child would hang.
TEST(ForkTest, AConditionWorksOnInAChild) {
  Mutex mutex;
  auto changed = std::make_unique<Condition>();
  bool stop = false;
  std::vector<std::thread> waiting;
  for (int t = 0; t < 4; ++t) {
    waiting.emplace_back([&] {
      const Lock lock(mutex);
      while (!stop) changed->wait(mutex);
    });
  }
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(in_child([&]() -> std::string {
                const AtMost limit(60);
                int turns = 0;  // guarded by mutex
                std::thread other([&] {
                  for (int i = 0; i < 100; ++i) {
                    const Lock lock(mutex);
                    while (turns % 2 != 1) changed->wait(mutex);
                    ++turns;
                    changed->notify_all();
                  }
                });
                for (int i = 0; i < 100; ++i) {
                  const Lock lock(mutex);
                  while (turns % 2 != 0) changed->wait(mutex);
                  ++turns;
                  changed->notify_all();
                }
                other.join();
                changed.reset();
                return turns == 200 ? "" : "turns were lost";
              }),
              "");
  }
  {
    const Lock lock(mutex);
    stop = true;
  }
  changed->notify_all();
  for (std::thread& thread : waiting) thread.join();
}

TEST(ForkTest, AWaitEndsWhenItsTokenIsSet) {
  Mutex mutex;
  Condition changed;
  CancelToken::Flag is_cancelled{false};
  std::thread other([&] { is_cancelled = true; });
  const auto wait = [&] {
    const Lock lock(mutex);
    for (;;) changed.wait(mutex, &is_cancelled);
  };
  EXPECT_THROW(wait(), Cancelled);
  other.join();
}

TEST(ForkTest, AConditionWaitsNoLongerThanToldTo) {
  Mutex mutex;
  Condition changed;
  const Lock lock(mutex);
  changed.wait_for(mutex, std::chrono::milliseconds(1));
}

TEST(ForkTest, AWorkThatTakesLongGivesWay) {
  std::atomic<bool> stop{false}, begun{false};
  std::thread busy([&] {
    const ForkSection section;
    begun = true;
    while (!stop) ForkSection::give_way();
  });
  while (!begun) std::this_thread::yield();
  EXPECT_EQ(in_child([]() -> std::string {
              const AtMost limit(60);
              const ForkSection section;
              return "";
            }),
            "");
  stop = true;
  busy.join();
}

TEST(WorkerThreadsTest, WithoutAFirstThreadThereAreNone) {
  if (test::kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they allocate the stack";
  pthread_attr_t usual, too_large;
  ASSERT_EQ(::pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(::pthread_attr_init(&too_large), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&too_large, std::size_t{1} << 47), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&too_large), 0);
  {
    WorkerThreads workers;
    EXPECT_THROW(workers.start([] {}, "test"), Error);
    EXPECT_TRUE(workers.empty());
  }
  ::pthread_setattr_default_np(&usual);
  ::pthread_attr_destroy(&too_large);
  ::pthread_attr_destroy(&usual);
}

TEST(ForkTest, WorkerThreadsAreForgottenInAChild) {
  std::atomic<bool> stop{false};
  WorkerThreads workers;
  workers.start(
      [&] {
        while (!stop) std::this_thread::yield();
      },
      "test");
  EXPECT_TRUE(workers.are_here());
  EXPECT_EQ(in_child([&]() -> std::string {
              const AtMost limit(60);
              if (workers.are_here()) return "they are here";
              workers.join();
              if (!workers.empty() || !workers.are_here()) return "not forgotten";
              std::atomic<bool> ran{false};
              workers.start([&] { ran = true; }, "test");
              workers.join();
              return ran ? "" : "a new one did not run";
            }),
            "");
  stop = true;
  workers.join();
}

TEST(ForkTest, AValuePerProcessStartsAnewInAChild) {
  PerProcess<int> value;
  value.get() = 7;
  EXPECT_EQ(in_child([&]() -> std::string { return value.get() == 0 ? "" : "the parent's"; }), "");
  EXPECT_EQ(value.get(), 7);
}

// Fault under test: tests/faults.md 50.
TEST(ForkTest, APipelineInAChildFailsAtOnceAndSaysWhy) {
  std::atomic<int> made{0};
  auto pipeline = std::make_unique<OrderedPipeline<int, int>>(
      [&]() -> std::optional<int> { return made++; }, [](int& item) { return item; },
      PipelineOptions{.threads = 2, .prefetch = 4});
  for (int round = 0; round < 100; ++round) {
    ASSERT_EQ(*pipeline->next(), round);
    ASSERT_EQ(in_child([&]() -> std::string {
                const AtMost limit(60);
                try {
                  pipeline->next();
                  return "no error";
                } catch (const Unsupported& e) {
                  if (std::string(e.what()).find("forked child") == std::string::npos) {
                    return e.what();
                  }
                }
                pipeline->stop();
                pipeline.reset();
                return "";
              }),
              "")
        << "round " << round;
  }
  EXPECT_EQ(*pipeline->next(), 100);
}

TEST(ForkTest, APipelineWithoutThreadsWorksOnInAChild) {
  int made = 0;
  OrderedPipeline<int, int> pipeline([&]() -> std::optional<int> { return made++; },
                                     [](int& item) { return item; }, {.threads = 0});
  EXPECT_EQ(*pipeline.next(), 0);
  EXPECT_EQ(in_child([&]() -> std::string { return *pipeline.next() == 1 ? "" : "another"; }), "");
  EXPECT_EQ(*pipeline.next(), 1);
}

/// True if another open file has a lock on the file.
bool is_locked(const std::string& path) {
  return File::open_to_lock(path).try_lock() == FileLock::kHeldByAnother;
}

TEST(ForkTest, AChildNeitherKeepsNorFreesTheParentsLocks) {
  const TempDir dir;
  write_file(dir / "f", "x");
  auto whole = std::make_unique<File>(File::open_to_lock(dir / "f"));
  ASSERT_EQ(whole->try_lock(), FileLock::kTaken);
  File byte = File::open_to_lock(dir / "f");
  ASSERT_TRUE(byte.try_lock_byte(5, true));
  File moved = std::move(byte);
  const File plain = File::open_read(dir / "f");
  int ready[2], go_on[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go_on), 0);
  test::Child child([&]() -> std::string {
    const AtMost limit(60);
    if (whole->fd() != -1 || moved.fd() != -1) return "the parent's locks are open";
    char read = 0;
    if (plain.read_at(0, &read, 1) != 1) return "what is not locked is closed, too";
    whole.reset();
    moved = File();
    if (!is_locked(dir / "f")) return "the child freed the parent's lock";
    if (File::open_to_lock(dir / "f").try_lock_byte(5, true)) return "and that of a byte";
    if (::write(ready[1], "+", 1) != 1) return "no pipe";
    if (::read(go_on[0], &read, 1) != 1) return "no pipe";
    return "";
  });
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_TRUE(is_locked(dir / "f"));
  // While the child runs, it does not keep the locks that the parent releases.
  whole.reset();
  moved.close();
  EXPECT_FALSE(is_locked(dir / "f"));
  EXPECT_TRUE(File::open_to_lock(dir / "f").try_lock_byte(5, true));
  ASSERT_EQ(::write(go_on[1], "+", 1), 1);
  EXPECT_EQ(child.wait(), "");
  for (const int fd : {ready[0], ready[1], go_on[0], go_on[1]}) ::close(fd);
}

TEST(ForkTest, AChildLeavesTheParentsUnfinishedFile) {
  const TempDir dir;
  auto file = std::make_unique<AtomicFile>(dir / "f");
  file->file().write("whole");
  EXPECT_EQ(in_child([&]() -> std::string {
              try {
                file->file().write("not mine");
                return "the child wrote to the parent's file";
              } catch (const Error&) {
              }
              file.reset();
              return "";
            }),
            "");
  file->commit();
  EXPECT_EQ(test::read_file(dir / "f"), "whole");
}

}  // namespace
}  // namespace shardwise
