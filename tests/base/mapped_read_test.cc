#include "base/mapped_read.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/mapped_file.h"
#include "support/process.h"
#include "support/support.h"

namespace shardwise {
namespace {

using test::in_child;
using test::kSanitized;
using test::TempDir;
using test::write_file;
using ::testing::AnyOf;
using ::testing::StartsWith;

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

/// A mapped file of 8 pages, in which no byte is zero.
class Mapping {
 public:
  Mapping() : content_(8 * kPage, '\0') {
    for (std::size_t i = 0; i < content_.size(); ++i) {
      content_[i] = static_cast<char>(1 + i % 251);
    }
    write_file(path(), content_);
    file_ = std::make_unique<MappedFile>(MappedFile::open(path()));
  }

  void truncate(std::size_t size) const {
    if (::truncate(path().c_str(), static_cast<off_t>(size)) != 0) throw std::runtime_error("cut");
  }
  void unmap() { file_.reset(); }

  std::string path() const { return dir_ / "f"; }
  const char* data() const { return file_->bytes().data(); }
  std::size_t size() const { return content_.size(); }
  const std::string& content() const { return content_; }
  /// Reads a byte without copy_mapped() and without a guard.
  char touch(std::size_t i) const { return *static_cast<const volatile char*>(data() + i); }

 private:
  TempDir dir_;
  std::string content_;
  std::unique_ptr<MappedFile> file_;
};

// Matches the end of a child by SIGBUS. With a sanitizer, the sanitizer's handler reports the fault
// and exits.
const testing::Matcher<std::string> kEndedByTheFault =
    kSanitized
        ? testing::Matcher<std::string>(AnyOf(StartsWith("exit status"), StartsWith("killed")))
        : testing::Matcher<std::string>("killed by signal 7");

TEST(CopyMappedTest, CopiesWhatIsThere) {
  const Mapping map;
  std::string to(map.size() - 7, 'x');
  EXPECT_TRUE(copy_mapped(to.data(), map.data() + 7, to.size()));
  EXPECT_EQ(to, map.content().substr(7));
  EXPECT_TRUE(copy_mapped(nullptr, nullptr, 0));
}

// faults.md 7
TEST(CopyMappedTest, IsFalseWherePagesAreGone) {
  const Mapping map;
  map.truncate(2 * kPage);
  std::string to(map.size(), 'x');
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(copy_mapped(to.data(), map.data(), map.size()));
    EXPECT_FALSE(copy_mapped(to.data(), map.data() + 2 * kPage, 1));
    EXPECT_FALSE(copy_mapped(to.data(), map.data() + 2 * kPage - 1, 2));
    EXPECT_FALSE(copy_mapped(to.data(), map.data() + map.size() - 1, 1));
    EXPECT_TRUE(copy_mapped(to.data(), map.data(), 2 * kPage));
    EXPECT_EQ(to.substr(0, 2 * kPage), map.content().substr(0, 2 * kPage));
  }
  map.truncate(map.size());  // the pages exist again, and contain zeros
  EXPECT_TRUE(copy_mapped(to.data(), map.data(), map.size()));
}

TEST(CopyMappedTest, SeveralCopiesAreMadeOrNoneCounts) {
  const Mapping map;
  std::string first(10, 'x');
  std::string last(20, 'x');
  const MappedCopy copies[] = {{first.data(), map.data() + 3, first.size()},
                               {nullptr, nullptr, 0},
                               {last.data(), map.data() + 6 * kPage, last.size()}};
  EXPECT_TRUE(copy_mapped(copies));
  EXPECT_EQ(first, map.content().substr(3, 10));
  EXPECT_EQ(last, map.content().substr(6 * kPage, 20));
  map.truncate(5 * kPage);
  EXPECT_FALSE(copy_mapped(copies));
  EXPECT_TRUE(copy_mapped(std::span(copies).first(2)));
  EXPECT_TRUE(copy_mapped(std::span<const MappedCopy>{}));
}

TEST(CopyMappedTest, ThePageOfTheNewEndReadsAsZeros) {
  const Mapping map;
  map.truncate(2 * kPage + 10);
  std::string to(kPage, 'x');
  EXPECT_TRUE(copy_mapped(to.data(), map.data() + 2 * kPage, kPage));
  EXPECT_EQ(to, map.content().substr(2 * kPage, 10) + std::string(kPage - 10, '\0'));
}

// faults.md 7
TEST(CopyMappedTest, ThreadsGoOnWhileAnotherTruncates) {
  const Mapping map;
  std::atomic<bool> stop{false};
  std::atomic<int> gone{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::string to(3 * kPage, 'x');
      while (!stop) {
        const std::size_t at = t * kPage;
        if (!copy_mapped(to.data(), map.data() + at, to.size())) {
          ++gone;
          continue;
        }
        for (std::size_t i = 0; i < to.size(); i += 97) {
          if (to[i] != '\0' && to[i] != map.content()[at + i]) ++wrong;
        }
      }
    });
  }
  for (int round = 0; round < 200 || gone < 100; ++round) {
    map.truncate(kPage * static_cast<std::size_t>(round % 4));
    std::this_thread::yield();
    map.truncate(map.size());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CopyMappedTest, WorksInAForkedChild) {
  const Mapping map;
  char to = 0;
  EXPECT_TRUE(copy_mapped(&to, map.data(), 1));
  map.truncate(kPage);
  EXPECT_EQ(in_child([&]() -> std::string {
              return copy_mapped(&to, map.data() + kPage, 1) ? "copied what is gone" : "";
            }),
            "");
}

// faults.md 7: a fault outside our reads has its usual effect.
TEST(CopyMappedTest, AFaultThatIsNotOursEndsTheProcess) {
  const Mapping map;
  EXPECT_THAT(in_child([&]() -> std::string {
                char to = 0;
                map.truncate(kPage);
                if (copy_mapped(&to, map.data() + kPage, 1)) return "copied what is gone";
                map.touch(kPage);
                return "lives";
              }),
              kEndedByTheFault);
  EXPECT_THAT(in_child([&]() -> std::string {
                // A fault at the target of a copy also has its usual effect.
                const File file = File::open_read(map.path());
                void* const gone =
                    ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.fd(), 0);
                const char from = 'x';
                return copy_mapped(static_cast<char*>(gone) + kPage, &from, 1) ? "lives" : "false";
              }),
              kEndedByTheFault);
}

struct sigaction bus_action() {
  struct sigaction action {};
  ::sigaction(SIGBUS, nullptr, &action);
  return action;
}
const auto kFirstHandler = bus_action().sa_sigaction;

/// False if an earlier test of this process has already installed our handler.
bool nothing_installed_yet() { return bus_action().sa_sigaction == kFirstHandler; }

TEST(CopyMappedTest, ASignalThatWasSentHasItsOldEffect) {
  if (!nothing_installed_yet())
    GTEST_SKIP() << "needs a separate process; skipped because the ctest test of its name runs it";
  if (kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they install their own "
                    "signal handler";
  char to = 0;
  EXPECT_EQ(in_child([&]() -> std::string {
              if (!copy_mapped(&to, "x", 1)) return "no copy";
              ::raise(SIGBUS);
              return "lives";
            }),
            "killed by signal 7");
  EXPECT_EQ(in_child([&]() -> std::string {
              std::signal(SIGBUS, SIG_IGN);
              if (!copy_mapped(&to, "x", 1)) return "no copy";
              ::raise(SIGBUS);
              return "";
            }),
            "");
}

sigjmp_buf back;
const char* seen_address = nullptr;
bool seen_blocked = false;
int num_calls = 0;

bool is_blocked() {
  sigset_t now;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
  return sigismember(&now, SIGBUS) == 1;
}
void jump_back(int) {
  ++num_calls;
  seen_blocked = is_blocked();
  siglongjmp(back, 1);
}
void note_and_jump_back(int, siginfo_t* info, void*) {
  seen_address = static_cast<const char*>(info->si_addr);
  jump_back(SIGBUS);
}
void only_count(int) { ++num_calls; }

/// Reads a missing page. Returns "" if a handler of this test handled the fault.
std::string caught_touch(const Mapping& map, std::size_t i) {
  if (sigsetjmp(back, 1) == 0) {
    map.touch(i);
    return "no fault";
  }
  return is_blocked() ? "SIGBUS stayed blocked" : "";
}

TEST(CopyMappedTest, AHandlerThatWasThereBeforeIsCalled) {
  if (!nothing_installed_yet())
    GTEST_SKIP() << "needs a separate process; skipped because the ctest test of its name runs it";
  const Mapping map;
  EXPECT_EQ(in_child([&]() -> std::string {
              struct sigaction action {};
              action.sa_sigaction = note_and_jump_back;
              action.sa_flags = SA_SIGINFO;
              ::sigaction(SIGBUS, &action, nullptr);
              map.truncate(kPage);
              for (int round = 1; round <= 3; ++round) {
                char to = 0;
                if (copy_mapped(&to, map.data() + kPage, 1)) return "copied what is gone";
                if (num_calls != round - 1) return "our fault went to the old handler";
                if (auto wrong = caught_touch(map, kPage + 5); !wrong.empty()) return wrong;
                if (num_calls != round) return "the old handler was not called";
                if (seen_address != map.data() + kPage + 5) return "another address";
                if (!seen_blocked) return "SIGBUS was not blocked in the old handler";
              }
              return "";
            }),
            "");
  EXPECT_EQ(in_child([&]() -> std::string {
              std::signal(SIGBUS, jump_back);  // a handler without siginfo
              char to = 0;
              if (copy_mapped(&to, map.data() + kPage, 1)) return "copied what is gone";
              if (auto wrong = caught_touch(map, kPage); !wrong.empty()) return wrong;
              return num_calls == 1 ? "" : "the old handler was not called";
            }),
            "");
}

TEST(CopyMappedTest, AHandlerForOneTimeIsCalledOnce) {
  if (!nothing_installed_yet())
    GTEST_SKIP() << "needs a separate process; skipped because the ctest test of its name runs it";
  const Mapping map;
  EXPECT_EQ(in_child([&]() -> std::string {
              struct sigaction action {};
              action.sa_handler = only_count;
              action.sa_flags = static_cast<int>(SA_RESETHAND);
              ::sigaction(SIGBUS, &action, nullptr);
              char to = 0;
              if (!copy_mapped(&to, map.data(), 1)) return "no copy";
              map.truncate(kPage);
              // The first fault calls the handler, which returns; the second has the default
              // effect.
              map.touch(kPage);
              return "lives";
            }),
            "killed by signal 7");
}

// Handlers of other code that are installed after ours.
struct sigaction found_by_later {};
int* num_calls_seen = nullptr;  // in shared memory, so it remains after the child has ended

int count_call() {
  if (num_calls_seen != nullptr) ++*num_calls_seen;
  return ++num_calls;
}

void report_and_go_back(int, siginfo_t*, void*) {
  count_call();
  ::sigaction(SIGBUS, &found_by_later, nullptr);  // the fault then occurs again
}
void report_and_call(int signal, siginfo_t* info, void* context) {
  if (count_call() > 3) ::_exit(77);
  if ((found_by_later.sa_flags & SA_SIGINFO) != 0) {
    found_by_later.sa_sigaction(signal, info, context);
  } else if (found_by_later.sa_handler == SIG_DFL) {
    std::signal(SIGBUS, SIG_DFL);
  }
}
void report_and_raise(int signal) {  // like Python's faulthandler
  if (count_call() > 3) ::_exit(77);
  ::sigaction(SIGBUS, &found_by_later, nullptr);
  ::raise(signal);
}

struct Later {
  const char* name;
  void (*install)();
};
template <auto kHandler, int kFlags>
void install_later() {
  struct sigaction action {};
  if constexpr ((kFlags & SA_SIGINFO) != 0) {
    action.sa_sigaction = kHandler;
  } else {
    action.sa_handler = kHandler;
  }
  action.sa_flags = kFlags;
  ::sigaction(SIGBUS, &action, &found_by_later);
}
class LaterHandlerTest : public ::testing::TestWithParam<Later> {};
INSTANTIATE_TEST_SUITE_P(
    Handlers, LaterHandlerTest,
    ::testing::Values(Later{"GoesBack", install_later<report_and_go_back, SA_SIGINFO>},
                      Later{"Calls", install_later<report_and_call, SA_SIGINFO | SA_NODEFER>},
                      Later{"Raises", install_later<report_and_raise, SA_NODEFER | SA_ONSTACK>},
                      Later{"Jumps", install_later<note_and_jump_back, SA_SIGINFO>},
                      Later{"JumpsWithoutInfo", install_later<jump_back, 0>},
                      Later{"Default", [] { std::signal(SIGBUS, SIG_DFL); }},
                      Later{"Ignores", [] { std::signal(SIGBUS, SIG_IGN); }}),
    [](const auto& param_info) { return param_info.param.name; });

/// Returns when the kernel's clock has ticked.
void wait_for_a_tick() {
  timespec begin{}, now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &begin);
  do {
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  } while (now.tv_nsec == begin.tv_nsec && now.tv_sec == begin.tv_sec);
}

// faults.md 7 and 50: PyTorch's worker processes install their handler in the child, and
// faulthandler may install its own at any time.
TEST_P(LaterHandlerTest, TakesNothingFromCopiesAndGuards) {
  const Mapping map;
  char to = 0;
  ASSERT_TRUE(copy_mapped(&to, map.data(), 1));
  map.truncate(kPage);
  EXPECT_EQ(in_child([&]() -> std::string {
              for (int round = 0; round < 3; ++round) {
                GetParam().install();
                if (copy_mapped(&to, map.data() + kPage, 1)) return "copied what is gone";
                GetParam().install();
                wait_for_a_tick();
                if (copy_mapped(&to, map.data() + kPage, 1, Look::kOnceATick)) return "copied it";
                if (num_calls != 0) return "our fault went to the other handler";
              }
              GetParam().install();
              const MappedReadGuard guard(map.data(), map.size());
              map.touch(2 * kPage);
              return guard.damaged() ? "" : "not damaged";
            }),
            "");
}

TEST_P(LaterHandlerTest, GetsTheFaultsThatAreNotOurs) {
  if (kSanitized)
    GTEST_SKIP() << "needs a build without sanitizers; skipped because they install their own "
                    "signal handler";
  const bool jumps = std::string_view(GetParam().name).starts_with("Jumps");
  const bool reports = !jumps && std::string_view(GetParam().name) != "Default" &&
                       std::string_view(GetParam().name) != "Ignores";
  struct Reported {
    int calls = 0;
  };
  const test::Shared<Reported> reported;
  const Mapping map;
  char to = 0;
  ASSERT_TRUE(copy_mapped(&to, map.data(), 1));
  map.truncate(kPage);
  const std::string said = in_child([&]() -> std::string {
    GetParam().install();
    for (int round = 1; round <= 3; ++round) {
      if (copy_mapped(&to, map.data() + kPage, 1)) return "copied what is gone";
      if (!jumps) break;
      if (auto wrong = caught_touch(map, kPage); !wrong.empty()) return wrong;
      if (num_calls != round) return "the other handler was not called";
    }
    if (jumps) return "";
    num_calls_seen = &reported->calls;
    map.touch(kPage);
    return "lives";
  });
  if (jumps) {
    EXPECT_EQ(said, "");
  } else {
    EXPECT_EQ(said, "killed by signal 7");
    EXPECT_EQ(reported->calls, reports ? 1 : 0);
  }
}

TEST(MappedReadGuardTest, IsNotDamagedWhereNothingIsGone) {
  const Mapping map;
  const MappedReadGuard guard(map.data(), map.size());
  EXPECT_EQ(std::string(map.data(), map.size()), map.content());
  EXPECT_FALSE(guard.damaged());
}

// faults.md 7
TEST(MappedReadGuardTest, WhatIsGoneReadsAsZerosToTheEndOfTheRange) {
  Mapping map;
  const char* const data = map.data();
  {
    const MappedReadGuard guard(data, map.size());
    map.truncate(3 * kPage);
    EXPECT_EQ(map.touch(0), 1);
    EXPECT_FALSE(guard.damaged());
    EXPECT_EQ(map.touch(5 * kPage + 1), 0);
    EXPECT_TRUE(guard.damaged());
    EXPECT_EQ(std::string(data + 5 * kPage, 3 * kPage), std::string(3 * kPage, '\0'));
    EXPECT_EQ(std::string(data, 3 * kPage), map.content().substr(0, 3 * kPage));
    EXPECT_EQ(map.touch(3 * kPage), 0);  // a second fault, at an earlier page
    EXPECT_TRUE(guard.damaged());
  }
  // Unmapping removes the zeros.
  map.unmap();
  unsigned char resident = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(::mincore(const_cast<char*>(data) + i * kPage, 1, &resident), -1);
    EXPECT_EQ(errno, ENOMEM);
  }
}

TEST(MappedReadGuardTest, ARangeWithinPagesIsMendedByWholePages) {
  const Mapping map;
  map.truncate(kPage);
  const MappedReadGuard guard(map.data() + kPage + 100, kPage);
  EXPECT_EQ(map.touch(kPage + 100), 0);
  EXPECT_EQ(map.touch(2 * kPage + 99), 0);
  EXPECT_TRUE(guard.damaged());
}

TEST(MappedReadGuardTest, TheRangeOfTheFaultIsTheOneThatIsDamaged) {
  const Mapping first;
  const Mapping second;
  const MappedReadGuard outer(first.data(), first.size());
  const MappedReadGuard inner(second.data(), second.size());
  first.truncate(0);
  EXPECT_EQ(first.touch(kPage), 0);
  EXPECT_TRUE(outer.damaged());
  EXPECT_FALSE(inner.damaged());
  char to = 0;
  second.truncate(0);
  EXPECT_FALSE(copy_mapped(&to, second.data(), 1));  // a copy fails, with or without a guard
  EXPECT_FALSE(inner.damaged());
}

TEST(MappedReadGuardTest, GuardsItsThreadAndItsTimeOnly) {
  const Mapping map;
  map.truncate(kPage);
  EXPECT_THAT(in_child([&]() -> std::string {
                const MappedReadGuard guard(map.data(), map.size());
                std::thread([&] { map.touch(kPage); }).join();
                return "lives";
              }),
              kEndedByTheFault);
  EXPECT_THAT(in_child([&]() -> std::string {
                { const MappedReadGuard guard(map.data(), map.size()); }
                map.touch(kPage);
                return "lives";
              }),
              kEndedByTheFault);
}

TEST(MappedReadGuardTest, ThreadsGuardMappingsOfTheirOwn) {
  std::atomic<int> damaged{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const Mapping map;
        const MappedReadGuard guard(map.data(), map.size());
        map.truncate(kPage);
        std::size_t zeros = 0;
        for (std::size_t i = 0; i < map.size(); ++i) zeros += map.touch(i) == 0 ? 1 : 0;
        if (guard.damaged() && zeros == 7 * kPage) ++damaged;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(damaged, 80);
}

}  // namespace
}  // namespace shardwise
