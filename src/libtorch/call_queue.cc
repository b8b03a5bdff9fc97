#include "libtorch/call_queue.h"

#include <utility>

namespace shardwise::libtorch::detail {

CallQueue::~CallQueue() {
  if (thread_.empty() || !thread_.are_here()) return;
  drain();
  {
    const Lock lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CallQueue::add(std::function<void()> call) {
  if (thread_.empty()) thread_.start([this] { work(); }, "reducer");
  {
    const Lock lock(mutex_);
    calls_.push_back(std::move(call));
  }
  changed_.notify_all();
}

void CallQueue::drain() noexcept {
  const Lock lock(mutex_);
  calls_.clear();
  while (is_busy_) changed_.wait(mutex_);
}

void CallQueue::work() {
  for (;;) {
    std::function<void()> call;
    {
      const Lock lock(mutex_);
      while (calls_.empty() && !stops_) changed_.wait(mutex_);
      if (stops_) return;
      call = std::move(calls_.front());
      calls_.pop_front();
      is_busy_ = true;
    }
    call();
    call = nullptr;
    {
      const Lock lock(mutex_);
      is_busy_ = false;
    }
    changed_.notify_all();
  }
}

}  // namespace shardwise::libtorch::detail
