// Without a macro this file must compile. With one of the UNLOCKED_ macros it uses a guarded
// variable without the mutex, and clang's thread-safety analysis must refuse it.

#include "base/fork.h"

class Counter {
 public:
  void add() {
#if !defined(UNLOCKED_WRITE)
    const shardwise::Lock lock(mutex_);
#endif
    ++value_;
  }
  int wait_for(int wanted) {
    shardwise::Lock lock(mutex_);
#if defined(UNLOCKED_BY_HAND)
    lock.unlock();
#endif
    while (value_ < wanted) changed_.wait(mutex_);
    return value_;
  }
  void reset() {
#if !defined(UNLOCKED_CALL)
    const shardwise::Lock lock(mutex_);
#endif
    clear();
  }
  void load() {
#if defined(UNLOCKED_LAMBDA)
    const shardwise::Lock lock(mutex_);
    const auto set = [this] { value_ = 1; };
#else
    const auto set = [this] {
      const shardwise::Lock lock(mutex_);
      value_ = 1;
    };
#endif
    set();
  }
  void both() {
#if defined(UNLOCKED_ORDER)
    const shardwise::Lock inner(mutex_);
    const shardwise::Lock turn(turn_);
#else
    const shardwise::Lock turn(turn_);
    const shardwise::Lock inner(mutex_);
#endif
    ++value_;
  }

 private:
  void clear() SHARDWISE_REQUIRES(mutex_) { value_ = 0; }

  shardwise::LongMutex turn_ SHARDWISE_ACQUIRED_BEFORE(mutex_);
  shardwise::Mutex mutex_;
  shardwise::Condition changed_;
  int value_ SHARDWISE_GUARDED_BY(mutex_) = 0;
};

int use(Counter& counter) {
  counter.add();
  counter.reset();
  counter.load();
  counter.both();
  return counter.wait_for(2);
}
