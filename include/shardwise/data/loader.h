#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/base/error.h"

namespace shardwise {

struct LoaderOptions {
  /// Threads that do the work. 0: none; the work is done in next(), by the consumer.
  unsigned num_threads = 2;
  /// Results in flight at most: being made, or made and not yet taken. 0: two a thread.
  std::size_t prefetch = 0;
};

/// Work done ahead by threads, delivered in order.
///
/// Takes items from `source`, gives each to `work` on one of its threads, and delivers the results in
/// the order of the items, whatever the number of threads. An item may be a sample number, or a batch
/// of them.
///
/// Threads: next() is for one consumer. `source` is called by one thread at a time; `work` by several
/// at once. The destructor and stop() end the threads after the items in hand, also when the consumer
/// left in the middle: nothing hangs, nothing leaks.
/// Memory: at most `prefetch` results exist at any time.
/// Errors: what `work` or `source` throws for an item is thrown by next() at that item's place, once;
///   after an error of `work` the loader goes on with the next item, after one of `source` it is at
///   its end.
template <class Item, class Result>
class Loader {
 public:
  using Source = std::function<std::optional<Item>()>;
  using Work = std::function<Result(const Item&)>;

  Loader(Source source, Work work, const LoaderOptions& options = {});
  ~Loader() { stop(); }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next result, or nothing at the end. Waits for it.
  std::optional<Result> next();

  /// Ends the threads and drops what was made ahead. next() gives nothing from now on. Idempotent.
  void stop() noexcept;

  /// Seconds that next() has waited for a result in total.
  double wait_seconds() const noexcept { return wait_seconds_; }

 private:
  struct Slot {
    std::optional<Result> result;
    std::exception_ptr error;
    bool ready = false;
  };

  void run() noexcept;

  const Source source_;
  const Work work_;
  const std::size_t prefetch_;

  // One lock for all: an item costs far more than the lock.
  std::mutex mutex_;
  std::condition_variable slot_ready_;  // consumer waits for the slot at the front
  std::condition_variable slot_free_;   // threads wait for room
  std::deque<Slot> slots_;              // slots_[0] is the next to be delivered
  std::uint64_t delivered_ = 0;         // items delivered; slots_[i] is item delivered_ + i
  bool source_ended_ = false;
  bool source_busy_ = false;
  bool stopping_ = false;
  double wait_seconds_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace shardwise

#include "shardwise/data/loader_impl.h"
