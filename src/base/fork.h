#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

// fork() beside busy threads. The child has only the thread that forked, and a copy of the memory
// as it was: locks that other threads held stay locked, and those threads do not exist. Three rules
// make a copy that remains usable; everything that a child may use keeps to them.
//
//   1. State that threads share is changed within a ForkSection; locking a Mutex enters one. fork()
//      waits until no other thread is in a section, and no thread enters one until the child exists
//      (pthread_atfork). So in the child every Mutex is free, and all state is as between two
//      sections. Sections nest in any order, since fork() does not wait for single locks. A section
//      is short: no network, no lock of another process, no callback of a user; a thread in it
//      waits for nothing but a Mutex. So every thread leaves its section, and fork() proceeds.
//   2. Work that takes long is noted within a section, done outside, and finished within another.
//      The note holds the process_generation() of the process that works. A child that finds the
//      note of another generation knows that the work was abandoned, and begins it again.
//   3. Waiting leaves no trace: a Condition is a number that changes. (A std::condition_variable
//      counts its waiting threads, and its destructor waits for them.) Threads are kept as
//      WorkerThreads, which a child forgets, and starts again.
//
// Locks of files belong to the open file, which parent and child share: see File::try_lock.
//
// This does not cover processes made without fork's handlers (vfork, posix_spawn, clone; they may
// only exec), nor locks within other libraries that do not take care themselves, as the name
// resolver's. SQLite's and libcurl's global locks are only ever taken within sections.

/// The generation of this process: one more in a child than in its parent.
SHARDWISE_EXPORT std::uint64_t process_generation() noexcept;

/// While it lives no other thread forks. Cost: two atomic additions, if it is the thread's
/// outermost.
class SHARDWISE_EXPORT ForkSection {
 public:
  [[nodiscard]] ForkSection() noexcept { enter(); }
  ~ForkSection() { leave(); }
  ForkSection(const ForkSection&) = delete;
  ForkSection& operator=(const ForkSection&) = delete;

  static void enter() noexcept;
  static void leave() noexcept;
  /// Lets waiting threads fork, if this thread is in one section and not in several. For long work,
  /// at points where all state is consistent and it holds no Mutex.
  static void give_way() noexcept;
};

/// A std::mutex that is free in a forked child.
class SHARDWISE_CAPABILITY("mutex") Mutex {
 public:
  void lock() SHARDWISE_ACQUIRE() {
    ForkSection::enter();
    mutex_.lock();
  }
  void unlock() SHARDWISE_RELEASE() {
    mutex_.unlock();
    ForkSection::leave();
  }

 private:
  std::mutex mutex_;
};

/// A std::mutex for what takes long, or calls a user's function: fork() does not wait for it. A
/// forked child may find it locked for ever, so it neither locks nor destroys it.
class SHARDWISE_CAPABILITY("mutex") LongMutex {
 public:
  void lock() SHARDWISE_ACQUIRE() { mutex_.lock(); }
  void unlock() SHARDWISE_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex or LongMutex while it lives, or until unlock(). One thread.
template <class Lockable>
class SHARDWISE_SCOPED_CAPABILITY [[nodiscard]] Lock {
 public:
  explicit Lock(Lockable& mutex) SHARDWISE_ACQUIRE(mutex) : mutex_(&mutex) { mutex.lock(); }
  ~Lock() SHARDWISE_RELEASE() {
    if (mutex_ != nullptr) mutex_->unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void unlock() SHARDWISE_RELEASE() { std::exchange(mutex_, nullptr)->unlock(); }

 private:
  Lockable* mutex_;
};

/// A condition variable that works on in a forked child. As with std::condition_variable, what is
/// waited for is changed under the mutex. A wait may end for no reason, so it stands in a loop:
///
///   const Lock lock(mutex_);
///   while (slots_.empty()) slot_made_.wait(mutex_);
class SHARDWISE_EXPORT Condition {
 public:
  /// Frees the mutex, waits, and takes the mutex again.
  /// REQUIRES: the thread is in no other section.
  void wait(Mutex& mutex) noexcept SHARDWISE_REQUIRES(mutex);
  /// As wait(), for about as long as `timeout` at most.
  void wait_for(Mutex& mutex, std::chrono::nanoseconds timeout) noexcept SHARDWISE_REQUIRES(mutex);
  /// As wait(), but ends within 50 ms after `cancel` is set. Errors: Cancelled, if it was set.
  void wait(Mutex& mutex, const CancelToken& cancel) SHARDWISE_REQUIRES(mutex);
  void notify_one() noexcept;
  void notify_all() noexcept;

 private:
  std::atomic<std::uint32_t> changes_{0};
  std::atomic<std::uint32_t> num_waiting_{0};  // in a child the parent's, too: only more wakes
};

/// Threads of the process that started them. One thread.
class SHARDWISE_EXPORT WorkerThreads {
 public:
  WorkerThreads() noexcept;
  /// REQUIRES: join() was called, or this is a child of the process that started them.
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  /// @param name  what debuggers and profilers show, with "-0" and so on behind it; 12 characters
  ///   at most.
  /// Errors: kIo if the system has no thread left.
  void start(std::function<void()> work, const char* name);
  bool empty() const noexcept { return threads_ == nullptr; }
  /// False in a child of the process that started them: there they do not exist.
  bool are_here() const noexcept { return generation_ == process_generation(); }
  /// Waits for their end. In a child: forgets them.
  void join() noexcept;

 private:
  std::uint64_t generation_;
  std::unique_ptr<std::vector<std::thread>> threads_;
};

/// A value that is T() again in a forked child. Its owner guards it with a Mutex.
template <class T>
class PerProcess {
 public:
  T& get() {
    if (generation_ != process_generation()) {
      value_ = T();
      generation_ = process_generation();
    }
    return value_;
  }

 private:
  T value_{};
  std::uint64_t generation_ = process_generation();
};

/// From now on every forked child calls `action` before fork() returns in it: what is not to be
/// shared with the parent. It runs alone, outside any section, and takes no Mutex. At most 8.
SHARDWISE_EXPORT bool call_in_children(void (*action)() noexcept) noexcept;

}  // namespace shardwise::detail

namespace shardwise {
using detail::call_in_children;
using detail::Condition;
using detail::ForkSection;
using detail::Lock;
using detail::LongMutex;
using detail::Mutex;
using detail::PerProcess;
using detail::process_generation;
using detail::WorkerThreads;
}  // namespace shardwise
