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

/// A timed event of a loader, for a timeline.
struct TraceEvent {
  enum class Kind : std::uint8_t {
    kPlan,     ///< a batch's samples are chosen and its memory allocated
    kRows,     ///< a thread makes rows of a batch
    kCollate,  ///< the rows of a batch are joined
    kWait,     ///< the consumer waits for a batch
  };
  Kind kind = Kind::kRows;
  unsigned thread = 0;  ///< 0 for the consumer; the loader's threads count from 1
  std::chrono::steady_clock::time_point begin{};
  std::chrono::nanoseconds duration{};
  std::uint64_t rows = 0;                                     ///< kRows only
  std::uint64_t first_sample = 0;                             ///< number of the first row's sample
  std::array<std::chrono::nanoseconds, kNumStages> stages{};  ///< the rows' time by stage
};

/// Counts the work of a loader, over all its epochs.
///
/// Threads: internally synchronised.
/// Cost: one lock per claim of rows and per batch; nothing else takes that lock.
class LoadMeter {
 public:
  using Clock = StageTimes::Clock;

  /// @param constants  initial values, with the final values of the fields that never change.
  explicit LoadMeter(const Loader::Stats& constants) : stats_(constants) {}

  /// Sets the calling thread's number, for its events.
  static void number_thread(unsigned number) noexcept;
  /// From now on, keeps the last `max_events` events.
  void keep_events(std::size_t max_events);
  /// Returns the kept events in the order of their ends.
  [[nodiscard]] std::vector<TraceEvent> events() const;

  /// Returns a warning with N in the place of each number, so that there are few kinds.
  [[nodiscard]] static std::string kind_of(std::string_view warning);

  /// Counts rows that were made.
  void add(const StageTimes& times, std::uint64_t rows, std::uint64_t first_sample);
  /// Counts work on a whole batch that ends now.
  /// @param opening  the part of this time that was spent on opening shards.
  void add(TraceEvent::Kind kind, Clock::time_point begin, std::chrono::nanoseconds opening = {});
  /// Counts time in which a thread had no work.
  void add_idle(std::chrono::nanoseconds time);
  /// Whether `time` is longer than that of every sample so far.
  [[nodiscard]] bool is_slowest(std::chrono::nanoseconds time) const noexcept {
    return time.count() > slowest_ns_.load(std::memory_order_relaxed);
  }
  void add_slowest(std::chrono::nanoseconds time, const std::string& sample);

  /// Counts an answer that the consumer requested at `asked` and gets now.
  /// @param used    time since the previous answer in the same epoch.
  /// @param ready   number of batches that were ready at `asked`.
  /// @param waited  time from `asked` to the answer; 0 if it was ready.
  void add_answer(Clock::time_point asked, std::chrono::nanoseconds used, std::size_t ready,
                  std::chrono::nanoseconds waited);
  /// Counts the consumer's time since the last answer, if it requests no other batch.
  void add_use(std::chrono::nanoseconds used);
  /// Counts a batch that the consumer got, and the bad samples that were left out of it.
  void add_batch(const Batch& batch, std::uint64_t bad_samples);

  [[nodiscard]] Loader::Stats stats() const;

 private:
  struct Kind {
    std::uint64_t images = 0;
    std::uint64_t number = 0;  // number of the first sample with the defect
    std::string first_sample;
  };

  void add_forgiven(const Forgiven& image) SHARDWISE_REQUIRES(mutex_);
  void keep(const TraceEvent& event) SHARDWISE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  Loader::Stats stats_ SHARDWISE_GUARDED_BY(mutex_);
  std::uint64_t answers_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::uint64_t ready_ SHARDWISE_GUARDED_BY(mutex_) = 0;  // summed over the answers
  std::map<std::string, Kind> forgiven_ SHARDWISE_GUARDED_BY(mutex_);
  Kind other_forgiven_ SHARDWISE_GUARDED_BY(mutex_);  // kinds beyond kMaxKinds
  std::atomic<std::int64_t> slowest_ns_{0};           // written under mutex_
  // A ring buffer. Once it is full, next_event_ is the oldest event.
  std::vector<TraceEvent> events_ SHARDWISE_GUARDED_BY(mutex_);
  std::size_t max_events_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::size_t next_event_ SHARDWISE_GUARDED_BY(mutex_) = 0;
};

}  // namespace shardwise::detail
