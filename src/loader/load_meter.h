#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork.h"
#include "loader/stage_times.h"
#include "shardwise/loader/loader.h"

namespace shardwise::detail {

/// Something that took time, for a time line.
struct TraceEvent {
  enum class Kind : std::uint8_t {
    kPlan,     ///< a batch: its samples, and memory
    kRows,     ///< rows of it
    kCollate,  ///< the batch of its rows
    kWait,     ///< the consumer, for a batch
  };
  Kind kind = Kind::kRows;
  unsigned thread = 0;  ///< 0: the consumer; the loader's threads from 1 on
  std::chrono::steady_clock::time_point begin{};
  std::chrono::nanoseconds duration{};
  std::uint64_t rows = 0;                                     ///< of kRows
  std::uint64_t first_sample = 0;                             ///< the number of their first
  std::array<std::chrono::nanoseconds, kNumStages> stages{};  ///< what they were spent on
};

/// Counts what a loader does, over all its epochs.
///
/// Threads: internally synchronised. Cost: a lock of its own for a claim of rows, and for a batch.
class LoadMeter {
 public:
  using Clock = StageTimes::Clock;

  /// What it says that is not counted.
  explicit LoadMeter(const Loader::Stats& constants) : stats_(constants) {}

  /// From now on the number of the calling thread in events.
  static void number_thread(unsigned number) noexcept;
  /// Keeps events from now on: the last `max_events`.
  void keep_events(std::size_t max_events);
  /// Those kept, in the order in which they ended.
  [[nodiscard]] std::vector<TraceEvent> events() const;

  /// The kind of a warning: its text with N for numbers, so that there are few kinds.
  [[nodiscard]] static std::string kind_of(std::string_view warning);

  /// Rows were made.
  void add(const StageTimes& times, std::uint64_t rows, std::uint64_t first_sample);
  /// Some work for a whole batch, which ends now.
  /// @param opening  so much of it was spent on opening shards.
  void add(TraceEvent::Kind kind, Clock::time_point begin, std::chrono::nanoseconds opening = {});
  /// A thread had nothing to do.
  void add_idle(std::chrono::nanoseconds time);
  /// Whether no sample took longer so far.
  [[nodiscard]] bool is_slowest(std::chrono::nanoseconds time) const noexcept {
    return time.count() > slowest_ns_.load(std::memory_order_relaxed);
  }
  void add_slowest(std::chrono::nanoseconds time, const std::string& sample);

  /// The consumer asked for a batch at `asked`, and has its answer now.
  /// @param used     the time since the answer before, in the same epoch.
  /// @param ready    batches that were made when it asked.
  /// @param waited   whether that was not enough.
  void add_answer(Clock::time_point asked, std::chrono::nanoseconds used, std::size_t ready,
                  std::chrono::nanoseconds waited);
  /// It asked for no other, after so much time.
  void add_use(std::chrono::nanoseconds used);
  /// It got one, without so many bad samples.
  void add_batch(const Batch& batch, std::uint64_t bad_samples);

  [[nodiscard]] Loader::Stats stats() const;

 private:
  struct Kind {
    std::uint64_t images = 0;
    std::uint64_t number = 0;  // of its first sample
    std::string first_sample;
  };

  void add_forgiven(const Forgiven& image) SHARDWISE_REQUIRES(mutex_);
  void keep(const TraceEvent& event) SHARDWISE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  Loader::Stats stats_ SHARDWISE_GUARDED_BY(mutex_);
  std::uint64_t answers_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::uint64_t ready_ SHARDWISE_GUARDED_BY(mutex_) = 0;  // summed over the answers
  std::map<std::string, Kind> forgiven_ SHARDWISE_GUARDED_BY(mutex_);
  Kind other_forgiven_ SHARDWISE_GUARDED_BY(mutex_);  // of more kinds than are kept
  std::atomic<std::int64_t> slowest_ns_{0};           // written under mutex_
  // A ring: next_event_ is the oldest, once it is full.
  std::vector<TraceEvent> events_ SHARDWISE_GUARDED_BY(mutex_);
  std::size_t max_events_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::size_t next_event_ SHARDWISE_GUARDED_BY(mutex_) = 0;
};

}  // namespace shardwise::detail
