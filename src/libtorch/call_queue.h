#pragma once

#include <deque>
#include <functional>

#include "base/fork.h"

namespace shardwise::libtorch::detail {

/// Runs calls of a group one at a time on its own thread, while the program computes.
///
/// Threads: one thread adds calls and calls drain().
/// Errors: calls must not throw.
class CallQueue {
 public:
  CallQueue() = default;
  /// Calls drain().
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  void add(std::function<void()> call);
  /// Discards the calls that have not begun, and waits for the running one.
  void drain() noexcept;

 private:
  void work();

  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> calls_ SHARDWISE_GUARDED_BY(mutex_);
  bool is_busy_ SHARDWISE_GUARDED_BY(mutex_) = false;
  bool stops_ SHARDWISE_GUARDED_BY(mutex_) = false;
  WorkerThreads thread_;  // the first call starts it
};

}  // namespace shardwise::libtorch::detail
