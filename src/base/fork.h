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

// How fork() works while other threads are busy. The child has only the forking thread, and a copy
// of the memory. Locks that other threads held stay locked, although those threads do not exist.
// All state that a child may use follows three rules:
//
//   1. Shared state is changed within a ForkSection; locking a Mutex enters one. fork() waits until
//      no other thread is in a section, and no thread enters one until the child exists
//      (pthread_atfork). Every Mutex is therefore free in the child, and the state is consistent.
//      Sections nest in any order, since fork() does not wait for single locks. A section is short:
//      no network, no lock of another process, no user's callback. A thread in a section waits only
//      for a Mutex, so every thread leaves its section, and fork() proceeds.
//   2. Long work is noted within a section, done outside, and finished within another section. The
//      note holds the worker's process_generation(). If a child finds another generation in a note,
//      the work was abandoned, and the child starts it again.
//   3. Waiting leaves no trace: a Condition is a number that changes. (A std::condition_variable
//      counts its waiting threads, and its destructor waits for them.) Threads are WorkerThreads: a
//      child forgets them, and starts new ones.
//
// Locks of files belong to the open file description, which parent and child share: see
// File::try_lock.
//
// Not covered: processes made without fork's handlers (vfork, posix_spawn, clone; they may only
// exec), and locks inside libraries without such handlers, e.g. the name resolver's. The global
// locks of SQLite and libcurl are taken only within sections.

/// Returns the generation of this process: its parent's plus one.
SHARDWISE_EXPORT std::uint64_t process_generation() noexcept;

/// Prevents other threads from forking while it lives.
/// Cost: two atomic additions for the thread's outermost section.
class SHARDWISE_EXPORT ForkSection {
 public:
  [[nodiscard]] ForkSection() noexcept { enter(); }
  ~ForkSection() { leave(); }
  ForkSection(const ForkSection&) = delete;
  ForkSection& operator=(const ForkSection&) = delete;

  static void enter() noexcept;
  static void leave() noexcept;
  /// Lets waiting threads fork, unless sections are nested. Call it during long work, where all
  /// state is consistent and this thread holds no Mutex.
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

/// A std::mutex for work that takes long or calls a user's function: fork() does not wait for it.
/// It may be locked permanently in a forked child, so a child neither locks nor destroys it.
class SHARDWISE_CAPABILITY("mutex") LongMutex {
 public:
  void lock() SHARDWISE_ACQUIRE() { mutex_.lock(); }
  void unlock() SHARDWISE_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex or LongMutex while it lives, or until unlock().
/// Threads: one.
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

/// A condition variable that still works in a forked child. Change the condition under the mutex,
/// as for std::condition_variable. Wait in a loop, since a wait may end spuriously:
///
///   const Lock lock(mutex_);
///   while (slots_.empty()) slot_made_.wait(mutex_);
class SHARDWISE_EXPORT Condition {
 public:
  /// Unlocks the mutex, waits, and locks the mutex again.
  /// REQUIRES: the thread is in no other section.
  void wait(Mutex& mutex) noexcept SHARDWISE_REQUIRES(mutex);
  /// Waits like wait(), but at most about `timeout`.
  void wait_for(Mutex& mutex, std::chrono::nanoseconds timeout) noexcept SHARDWISE_REQUIRES(mutex);
  /// Waits like wait(), but ends within 50 ms after `cancel` is set.
  /// Errors: Cancelled, if it was set.
  void wait(Mutex& mutex, const CancelToken& cancel) SHARDWISE_REQUIRES(mutex);
  void notify_one() noexcept;
  void notify_all() noexcept;

 private:
  std::atomic<std::uint32_t> changes_{0};
  std::atomic<std::uint32_t> num_waiting_{0};  // a child keeps the parent's, which only adds wakes
};

/// Threads that stay with the process that started them.
/// Threads: used by one thread.
class SHARDWISE_EXPORT WorkerThreads {
 public:
  WorkerThreads() noexcept;
  /// REQUIRES: join() was called, or this process is a child of the one that started them.
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  /// Starts one thread.
  /// @param name  name in debuggers and profilers, at most 12 characters; "-0" and so on is
  ///   appended.
  /// Errors: kIo if the system cannot start another thread.
  void start(std::function<void()> work, const char* name);
  bool empty() const noexcept { return threads_ == nullptr; }
  /// False in a child of the process that started the threads: they do not exist there.
  bool are_here() const noexcept { return generation_ == process_generation(); }
  /// Waits until all threads end. In a child it only forgets them.
  void join() noexcept;

 private:
  std::uint64_t generation_;
  std::unique_ptr<std::vector<std::thread>> threads_;
};

/// A value that is reset to T() in a forked child. Its owner guards it with a Mutex.
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

/// Registers `action`: every forked child calls it before fork() returns there, to drop state that
/// it must not share with the parent. It runs alone, outside any section, and must not lock a
/// Mutex. Returns false if 8 actions are registered already.
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
