#pragma once

#include <deque>
#include <functional>

#include "base/fork.h"

namespace shardwise::libtorch::detail {

/// Calls of a group that a thread makes, one after the other, while the program computes.
///
/// Threads: one that adds and drains. Calls throw nothing.
class CallQueue {
 public:
  CallQueue() = default;
  /// As drain().
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  void add(std::function<void()> call);
  /// Drops the calls that were not begun, and waits for the end of the one that was.
  void drain() noexcept;

 private:
  void work();

  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> calls_ SHARDWISE_GUARDED_BY(mutex_);
  bool is_busy_ SHARDWISE_GUARDED_BY(mutex_) = false;
  bool stops_ SHARDWISE_GUARDED_BY(mutex_) = false;
  WorkerThreads thread_;  // once there was a call
};

}  // namespace shardwise::libtorch::detail
