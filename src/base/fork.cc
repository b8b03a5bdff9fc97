#include "base/fork.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/assert.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

constinit std::atomic<std::uint64_t> fork_generation{1};
// A thread that enters a section first increments num_in_sections, then reads fork_is_near. A
// thread that forks first sets fork_is_near, then reads num_in_sections. At least one of two such
// threads therefore sees the other.
constinit std::atomic<std::uint32_t> num_in_sections{0};
constinit std::atomic<std::uint32_t> fork_is_near{0};
// Number of nested sections that this thread is in.
constinit thread_local std::uint32_t section_depth = 0;

constinit std::array<void (*)() noexcept, 8> child_actions{};
constinit std::size_t num_child_actions = 0;

void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                 const timespec* timeout = nullptr) noexcept {
  static_assert(sizeof word == sizeof(std::uint32_t));
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, timeout, nullptr, 0);
}

void wake_sleepers(const std::atomic<std::uint32_t>& word, int count) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void count_out() noexcept {
  num_in_sections.fetch_sub(1);
  if (fork_is_near.load() != 0) wake_sleepers(num_in_sections, INT_MAX);
}

void count_in() noexcept {
  for (;;) {
    num_in_sections.fetch_add(1);
    if (fork_is_near.load() == 0) return;
    count_out();
    sleep_while(fork_is_near, 1);
  }
}

void before_fork() {
  // If another thread forks, waits until it has forked.
  while (fork_is_near.exchange(1) != 0) sleep_while(fork_is_near, 1);
  const std::uint32_t own = section_depth > 0 ? 1 : 0;
  for (std::uint32_t now = 0; (now = num_in_sections.load()) > own;)
    sleep_while(num_in_sections, now);
  ++section_depth;  // other fork handlers may enter sections
}

void open_again() noexcept {
  --section_depth;
  fork_is_near.store(0);
  wake_sleepers(fork_is_near, INT_MAX);
}

void in_child() {
  // Other threads that were about to enter a section do not exist in this process.
  num_in_sections.store(section_depth > 1 ? 1 : 0);
  fork_generation.fetch_add(1);
  for (std::size_t i = 0; i < num_child_actions; ++i) child_actions[i]();
  open_again();
}

/// Registers the handlers when the library is loaded. Programs register their own handlers later,
/// so ours run last before a fork, and first after it.
[[maybe_unused]] const int registered = ::pthread_atfork(before_fork, open_again, in_child);

}  // namespace

std::uint64_t process_generation() noexcept {
  return fork_generation.load(std::memory_order_relaxed);
}

void ForkSection::enter() noexcept {
  if (section_depth++ == 0) count_in();
}

void ForkSection::leave() noexcept {
  if (--section_depth == 0) count_out();
}

void ForkSection::give_way() noexcept {
  if (section_depth != 1 || fork_is_near.load(std::memory_order_relaxed) == 0) return;
  count_out();
  count_in();
}

void Condition::wait(Mutex& mutex) noexcept { wait_for(mutex, std::chrono::nanoseconds::max()); }

void Condition::wait_for(Mutex& mutex, std::chrono::nanoseconds timeout) noexcept {
  SHARDWISE_ASSERT(section_depth == 1);  // otherwise fork() would wait until this wait ends
  const std::uint32_t seen = changes_.load();
  num_waiting_.fetch_add(1);
  mutex.unlock();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (timeout - seconds).count()};
  sleep_while(changes_, seen, timeout == std::chrono::nanoseconds::max() ? nullptr : &time);
  mutex.lock();
  num_waiting_.fetch_sub(1);
}

void Condition::wait(Mutex& mutex, const CancelToken& cancel) {
  cancel.throw_if_cancelled();
  // The token is polled, because a signal handler may set its flag but cannot notify a condition.
  wait_for(mutex, std::chrono::milliseconds(50));
}

void Condition::notify_one() noexcept {
  changes_.fetch_add(1);
  if (num_waiting_.load() != 0) wake_sleepers(changes_, 1);
}

void Condition::notify_all() noexcept {
  changes_.fetch_add(1);
  if (num_waiting_.load() != 0) wake_sleepers(changes_, INT_MAX);
}

WorkerThreads::WorkerThreads() noexcept : generation_(process_generation()) {}
WorkerThreads::~WorkerThreads() {
  SHARDWISE_ASSERT(empty() || !are_here());
  if (!are_here()) join();
}

void WorkerThreads::start(std::function<void()> work, const char* name) {
  if (!are_here()) join();
  if (!threads_) threads_ = std::make_unique<std::vector<std::thread>>();
  try {
    threads_->emplace_back(std::move(work));
    // The kernel accepts 15 characters. A failure to set the name does no harm.
    const std::string full = std::string(name) + "-" + std::to_string(threads_->size() - 1);
    ::pthread_setname_np(threads_->back().native_handle(), full.substr(0, 15).c_str());
  } catch (const std::system_error& e) {
    if (threads_->empty()) threads_.reset();
    throw Error(ErrorCode::kIo, "cannot start a thread", e.code().message(),
                "use fewer threads, or raise the limit on processes (ulimit -u)");
  }
}

void WorkerThreads::join() noexcept {
  if (!are_here()) {
    // The threads do not exist in this process, so they can be neither joined nor detached.
    static_cast<void>(threads_.release());
    generation_ = process_generation();
  } else if (threads_) {
    for (std::thread& thread : *threads_) thread.join();
    threads_.reset();
  }
}

bool call_in_children(void (*action)() noexcept) noexcept {
  if (num_child_actions == child_actions.size()) return false;
  child_actions[num_child_actions++] = action;
  return true;
}

}  // namespace shardwise::detail
