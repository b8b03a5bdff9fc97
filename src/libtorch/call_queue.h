#pragma once

#include <deque>
#include <functional>

#include "base/fork.h"

namespace shardwise::libtorch::detail {

/// Runs calls of a group on a thread, one at a time, while the program computes.
///
/// Threads: one thread adds and drains.
/// Errors: calls must not throw.
class CallQueue {
 public:
  CallQueue() = default;
  /// Calls drain().
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  void add(std::function<void()> call);
  /// Drops the calls that have not begun, and waits for the one that runs.
  void drain() noexcept;

 private:
  void work();

  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> calls_ SHARDWISE_GUARDED_BY(mutex_);
  bool is_busy_ SHARDWISE_GUARDED_BY(mutex_) = false;
  bool stops_ SHARDWISE_GUARDED_BY(mutex_) = false;
  WorkerThreads thread_;  // started by the first call
};

}  // namespace shardwise::libtorch::detail
