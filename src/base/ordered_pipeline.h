#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "base/fork.h"
#include "shardwise/base/error.h"

namespace shardwise {

struct PipelineOptions {
  /// Threads that do the work. 0: none; the work is done in next(), by the consumer.
  unsigned num_threads = 2;
  /// Results in flight at most: being made, or made and not yet taken. 0: two a thread.
  std::size_t prefetch = 0;
};

/// Work done ahead by threads, delivered in order.
///
/// Takes items from `source`, gives each to `work` on one of its threads, and delivers the results
/// in the order of the items, whatever the number of threads.
///
/// Threads: next() is for one consumer. `source` is called by one thread at a time; `work` by
/// several at once. The destructor and stop() end the threads after the items in hand, also when
/// the consumer left in the middle: nothing hangs, nothing leaks.
/// Memory: at most `prefetch` results exist at any time.
/// Errors: what `work` throws for an item is thrown by next() in that item's place, and the
///   pipeline goes on with the next item; what `source` throws is thrown by next() in its place,
///   and is the end.
/// Processes: its threads stay with the process that made it. In a forked child next() throws
///   Unsupported, unless there are none; destroying it and stop() do no harm.
template <class Item, class Result>
class OrderedPipeline {
 public:
  using Source = std::function<std::optional<Item>()>;
  using Work = std::function<Result(Item&)>;

  OrderedPipeline(Source source, Work work, const PipelineOptions& options = {})
      : source_(std::move(source)),
        work_(std::move(work)),
        prefetch_(options.prefetch != 0 ? options.prefetch : std::size_t{2} * options.num_threads) {
    try {
      for (unsigned i = 0; i < options.num_threads; ++i) threads_.start([this] { run(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~OrderedPipeline() { stop(); }
  OrderedPipeline(const OrderedPipeline&) = delete;
  OrderedPipeline& operator=(const OrderedPipeline&) = delete;

  /// The next result, or nothing at the end. Waits for it.
  std::optional<Result> next() {
    if (threads_.empty()) return make_one();
    if (!threads_.are_here()) {
      throw Unsupported("a loader's threads stay with the process that made it", "",
                        "make the loader in the forked child, or give it no threads");
    }
    std::unique_lock lock(mutex_);
    const auto deliverable = [this] {
      return stopping_ || (slots_.empty() ? source_ended_ : slots_.front().ready);
    };
    if (!deliverable()) {
      const auto start = std::chrono::steady_clock::now();
      slot_ready_.wait(lock, deliverable);
      wait_seconds_ +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
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

  /// Ends the threads and drops what was made ahead. next() gives nothing from now on. Idempotent.
  void stop() noexcept {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    slot_free_.notify_all();
    slot_ready_.notify_all();
    threads_.join();
    slots_.clear();
    source_ended_ = true;
  }

  /// Seconds that next() has waited for results of the threads, in total. For the consumer.
  double wait_seconds() const noexcept { return wait_seconds_; }

 private:
  // slots_ has one slot for each item that was taken and not yet delivered, in their order:
  //
  //   item    first_slot_   +1      +2      +3
  //   slots_  | ready     | work  | ready | work  |      at most prefetch_ of them
  //             ^ next() takes this one alone, and only when it is ready
  //
  // A thread takes an item and appends its slot in one turn under source_mutex_. So slots_[i] is
  // always of item first_slot_ + i, whichever thread finishes first. The slot of a thread at work
  // is not ready, hence never taken, so `number - first_slot_` finds it again.
  //
  // Lock order: source_mutex_, then mutex_. source_ is called with source_mutex_ alone, since it
  // may take long, and work_ with neither. A thread waits for a free slot with source_mutex_ held,
  // so at most one thread waits on slot_free_, and the others queue for their turn behind it.
  // source_mutex_ is no Mutex, for that must be held briefly. No forked child locks it: next()
  // refuses there, and stop() does not need it.
  //
  // slots_ is cleared by stop() alone, once no thread is left. A thread that sees stopping_ leaves
  // its result undelivered.

  struct Slot {
    std::optional<Result> result;
    std::exception_ptr error;
    bool ready = false;
  };

  std::optional<Result> make_one() {
    if (source_ended_) return std::nullopt;
    std::optional<Item> item;
    try {
      item = source_();
    } catch (...) {
      source_ended_ = true;
      throw;
    }
    if (!item) {
      source_ended_ = true;
      return std::nullopt;
    }
    return work_(*item);
  }

  void run() noexcept {
    for (;;) {
      Slot made;
      std::optional<Item> item;
      std::uint64_t number = 0;
      {
        // One thread at a time, so that slots lie in the order in which the source gave the items.
        const std::lock_guard turn(source_mutex_);
        {
          std::unique_lock lock(mutex_);
          slot_free_.wait(
              lock, [this] { return stopping_ || source_ended_ || slots_.size() < prefetch_; });
          if (stopping_ || source_ended_) {
            slot_free_.notify_one();  // so that the next thread in line ends, too
            return;
          }
        }
        try {
          item = source_();
        } catch (...) {
          made.error = std::current_exception();
        }
        const std::lock_guard lock(mutex_);
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
        const std::lock_guard lock(mutex_);
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

  std::mutex source_mutex_;  // before mutex_; held while an item is taken and its slot made
  Mutex mutex_;              // guards all below
  Condition slot_ready_;
  Condition slot_free_;
  std::deque<Slot> slots_;        // slots_[i] is of item first_slot_ + i
  std::uint64_t first_slot_ = 0;  // items delivered
  bool source_ended_ = false;
  std::exception_ptr end_error_;  // what ended the source, to be thrown after all slots
  bool stopping_ = false;
  double wait_seconds_ = 0;  // of the consumer's own
  WorkerThreads threads_;
};

}  // namespace shardwise
