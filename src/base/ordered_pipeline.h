#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "base/error_types.h"
#include "base/fork.h"

namespace shardwise {

struct PipelineOptions {
  /// Number of threads that do the work. 0 means: next() does the work on the consumer's thread.
  unsigned threads = 2;
  /// Largest number of results that wait for delivery or are being made. 0 means two per thread.
  std::size_t prefetch = 0;
};

/// A pipeline whose threads make results ahead, and which delivers them in order.
///
/// It takes items from `source`, and passes each to `work` on one of its threads. next() returns
/// the results in the order of the items, for any number of threads.
///
/// Threads: next() is for one consumer. `source` is called by one thread at a time, `work` by
///   several at once. The destructor and stop() end the threads after their current items, even if
///   results are missing.
/// Memory: at most `prefetch` results exist at any time.
/// Errors: if `work` throws for an item, next() throws this exception instead of returning the
///   item's result, and the pipeline continues with the next item. If `source` throws, next() first
///   returns the results of earlier items, then throws the exception, and the pipeline ends.
/// Processes: the threads belong to the process that made the pipeline. In a forked child, next()
///   throws Unsupported if the pipeline has threads; stop() and destruction are safe.
template <class Item, class Result>
class OrderedPipeline {
 public:
  using Source = std::function<std::optional<Item>()>;
  using Work = std::function<Result(Item&)>;

  OrderedPipeline(Source source, Work work, const PipelineOptions& options = {})
      : source_(std::move(source)),
        work_(std::move(work)),
        prefetch_(options.prefetch != 0 ? options.prefetch : std::size_t{2} * options.threads) {
    try {
      for (unsigned i = 0; i < options.threads; ++i) threads_.start([this] { run(); }, "sw-work");
    } catch (...) {
      stop();
      throw;
    }
  }
  ~OrderedPipeline() { stop(); }
  OrderedPipeline(const OrderedPipeline&) = delete;
  OrderedPipeline& operator=(const OrderedPipeline&) = delete;

  /// Waits for the next result and returns it; returns nothing at the end.
  std::optional<Result> next() {
    if (threads_.empty()) return make_one();
    if (!threads_.are_here()) {
      throw Unsupported("a loader with threads cannot be used in a forked child", "",
                        "make the loader in the child, or use 0 threads");
    }
    Lock lock(mutex_);
    while (!has_answer()) slot_ready_.wait(mutex_);
    if (stopping_) return std::nullopt;
    if (slots_.empty()) {
      if (end_error_) std::rethrow_exception(std::exchange(end_error_, nullptr));
      return std::nullopt;
    }
    Slot slot = std::move(slots_.front());
    slots_.pop_front();
    ++first_slot_;
    lock.unlock();
    slot_free_.notify_one();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.result);
  }

  /// Ends the threads and drops pending results. Afterwards next() returns nothing. Idempotent.
  void stop() noexcept {
    {
      const Lock lock(mutex_);
      stopping_ = source_ended_ = true;
    }
    slot_free_.notify_all();
    slot_ready_.notify_all();
    threads_.join();
    while (drop_slot()) {
    }
  }

 private:
  // slots_ has one slot for each item that was taken from the source but not yet delivered, in item
  // order:
  //
  //   item    first_slot_   +1      +2      +3
  //   slots_  | ready     | work  | ready | work  |      at most prefetch_ of them
  //             ^ next() takes this one alone, and only when it is ready
  //
  // A thread takes an item and appends its slot while it holds source_mutex_. slots_[i] therefore
  // always belongs to item first_slot_ + i, whichever thread finishes first. The slot of a working
  // thread is not ready, so next() does not remove it, and the thread finds it at slots_[number -
  // first_slot_].
  //
  // Lock order: source_mutex_, then mutex_. source_ is called with only source_mutex_ locked,
  // because it may take long; this mutex is therefore a LongMutex. A forked child never locks it:
  // next() throws there, and stop() does not need it. work_ is called without locks. A thread waits
  // for a free slot with source_mutex_ locked, so at most one thread waits on slot_free_, and the
  // others wait for source_mutex_.
  //
  // Only stop() clears slots_, after all threads have ended. A thread that finds stopping_ set
  // drops its result.

  struct Slot {
    std::optional<Result> result;
    std::exception_ptr error;
    bool ready = false;
  };

  /// True if next() need not wait.
  bool has_answer() const SHARDWISE_REQUIRES(mutex_) {
    return stopping_ || (slots_.empty() ? source_ended_ : slots_.front().ready);
  }

  /// Drops the first undelivered result. The result is destroyed with mutex_ unlocked, because its
  /// destructor is the user's code.
  bool drop_slot() noexcept {
    Slot dropped;
    const Lock lock(mutex_);
    if (slots_.empty()) return false;
    dropped = std::move(slots_.front());
    slots_.pop_front();
    return true;
  }

  /// Makes the next result without threads.
  std::optional<Result> make_one() {
    {
      const Lock lock(mutex_);
      if (source_ended_) return std::nullopt;
    }
    std::optional<Item> item;
    std::exception_ptr error;
    try {
      item = source_();
    } catch (...) {
      error = std::current_exception();
    }
    if (item) return work_(*item);
    {
      const Lock lock(mutex_);
      source_ended_ = true;
    }
    if (error) std::rethrow_exception(error);
    return std::nullopt;
  }

  void run() noexcept {
    for (;;) {
      Slot made;
      std::optional<Item> item;
      std::uint64_t number = 0;
      {
        // Only one thread at a time, so that slots_ has the order of the items.
        const Lock turn(source_mutex_);
        {
          const Lock lock(mutex_);
          while (!stopping_ && !source_ended_ && slots_.size() >= prefetch_) {
            slot_free_.wait(mutex_);
          }
          if (stopping_ || source_ended_) {
            slot_free_.notify_one();  // wakes the next waiting thread, which then ends
            return;
          }
        }
        try {
          item = source_();
        } catch (...) {
          made.error = std::current_exception();
        }
        const Lock lock(mutex_);
        if (item) {
          number = first_slot_ + slots_.size();
          try {
            slots_.emplace_back();
          } catch (...) {
            made.error = std::current_exception();
            item.reset();
          }
        }
        if (!item) {
          source_ended_ = true;
          end_error_ = std::exchange(made.error, nullptr);
        }
      }
      if (item) {
        try {
          made.result.emplace(work_(*item));
        } catch (...) {
          made.error = std::current_exception();
        }
        item.reset();
      }
      {
        const Lock lock(mutex_);
        if (stopping_) return;
        if (made.result || made.error) {
          made.ready = true;
          slots_[number - first_slot_] = std::move(made);
        }
      }
      slot_ready_.notify_one();
    }
  }

  const Source source_;
  const Work work_;
  const std::size_t prefetch_;

  // Locked while a thread takes an item and appends its slot.
  LongMutex source_mutex_ SHARDWISE_ACQUIRED_BEFORE(mutex_);
  Mutex mutex_;
  Condition slot_ready_;
  Condition slot_free_;
  // slots_[i] belongs to item first_slot_ + i.
  std::deque<Slot> slots_ SHARDWISE_GUARDED_BY(mutex_);
  std::uint64_t first_slot_ SHARDWISE_GUARDED_BY(mutex_) = 0;  // number of delivered items
  bool source_ended_ SHARDWISE_GUARDED_BY(mutex_) = false;
  // The error that ended the source. next() throws it after all slots.
  std::exception_ptr end_error_ SHARDWISE_GUARDED_BY(mutex_);
  bool stopping_ SHARDWISE_GUARDED_BY(mutex_) = false;
  WorkerThreads threads_;
};

}  // namespace shardwise
