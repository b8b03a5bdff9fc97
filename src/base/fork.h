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

// How the library supports fork() while other threads are working. The child has only the thread
// that called fork(), and a copy of the memory. Locks of other threads remain locked in the child,
// although these threads do not exist there. All state that a child may use therefore follows three
// rules:
//
//   1. Shared state is changed only within a ForkSection; locking a Mutex enters a section. fork()
//      waits until no other thread is in a section, and no thread can enter a section until the
//      child exists (pthread_atfork). In the child, every Mutex is therefore free, and the state is
//      consistent. Sections may nest in any order, because fork() waits for sections, not for
//      single locks. A section is short: it uses no network, no lock of another process, and no
//      user's callback. A thread in a section waits only for a Mutex, so every thread leaves its
//      section, and fork() proceeds.
//   2. Long work is recorded within a section, done outside, and finished within another section.
//      The record contains the worker's process_generation(). If a child finds another generation
//      in a record, no thread is doing that work any more, and the child starts it again.
//   3. A waiting thread changes no state: a Condition is a number that notifications increment. (A
//      std::condition_variable counts its waiting threads, and its destructor waits for them.)
//      Threads are WorkerThreads: a child drops them and starts new threads.
//
// File locks belong to the open file description, which parent and child share; see File.
//
// Processes that are made without fork's handlers (vfork, posix_spawn, clone) are not supported;
// they may only call exec. Locks inside other libraries without fork handlers, e.g. the name
// resolver, are not supported either. The global locks of SQLite and libcurl are taken only within
// sections.

/// Returns the generation of this process: that of its parent plus one.
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
  /// Lets other threads fork now, unless sections are nested. Call it during long work, at a point
  /// where all state is consistent and this thread has no Mutex locked.
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

/// Locks a Mutex or LongMutex until it is destroyed or unlock() is called.
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

/// A condition variable that works in a forked child. Change the condition under the mutex, as for
/// std::condition_variable. Wait in a loop, because a wait may end spuriously:
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
  /// Errors: Cancelled if `cancel` was set.
  void wait(Mutex& mutex, const CancelToken& cancel) SHARDWISE_REQUIRES(mutex);
  void notify_one() noexcept;
  void notify_all() noexcept;

 private:
  std::atomic<std::uint32_t> changes_{0};
  // A child inherits the parent's value, which only causes needless wakes.
  std::atomic<std::uint32_t> num_waiting_{0};
};

/// Threads that belong to the process that started them. A forked child may destroy this object, or
/// start new threads in it.
/// Threads: used by one thread.
class SHARDWISE_EXPORT WorkerThreads {
 public:
  WorkerThreads() noexcept;
  /// REQUIRES: join() was called, or this process is a forked child of the process that started the
  ///   threads.
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  /// Starts one thread.
  /// @param name  name in debuggers and profilers, at most 12 characters; "-0" and so on is
  ///   appended.
  /// Errors: kIo if the system cannot start another thread.
  void start(std::function<void()> work, const char* name);
  bool empty() const noexcept { return threads_ == nullptr; }
  /// True in the process that started the threads. In a forked child they do not exist.
  bool are_here() const noexcept { return generation_ == process_generation(); }
  /// Waits until all threads end. In a forked child it only drops them.
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

/// Registers `action` to be called in every forked child before fork() returns there. The action
/// drops state that the child must not share with the parent. It runs on the only thread, outside
/// any section, and must not lock a Mutex. Returns false if 8 actions are already registered.
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
