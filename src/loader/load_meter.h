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

/// A timed event of a loader, for a time line.
struct TraceEvent {
  enum class Kind : std::uint8_t {
    kPlan,     ///< planning a batch: its samples and memory
    kRows,     ///< making rows of a batch
    kCollate,  ///< joining the rows of a batch
    kWait,     ///< the consumer's wait for a batch
  };
  Kind kind = Kind::kRows;
  unsigned thread = 0;  ///< 0 for the consumer; the loader's threads count from 1
  std::chrono::steady_clock::time_point begin{};
  std::chrono::nanoseconds duration{};
  std::uint64_t rows = 0;                                     ///< kRows only
  std::uint64_t first_sample = 0;                             ///< number of the first row's sample
  std::array<std::chrono::nanoseconds, kNumStages> stages{};  ///< the rows' time, by stage
};

/// Counts the work of a loader, over all its epochs.
///
/// Threads: internally synchronised.
/// Cost: one lock, used by nothing else, for each claim of rows and each batch.
class LoadMeter {
 public:
  using Clock = StageTimes::Clock;

  /// @param constants  the statistics that are not counted.
  explicit LoadMeter(const Loader::Stats& constants) : stats_(constants) {}

  /// Sets the number of the calling thread in events.
  static void number_thread(unsigned number) noexcept;
  /// Keeps the last `max_events` events, from now on.
  void keep_events(std::size_t max_events);
  /// The kept events, in the order in which they ended.
  [[nodiscard]] std::vector<TraceEvent> events() const;

  /// Returns the kind of a warning: its text with N for each number, so that there are few kinds.
  [[nodiscard]] static std::string kind_of(std::string_view warning);

  /// Counts rows that were made.
  void add(const StageTimes& times, std::uint64_t rows, std::uint64_t first_sample);
  /// Counts work for a whole batch, which ends now.
  /// @param opening  part of that time spent on opening shards.
  void add(TraceEvent::Kind kind, Clock::time_point begin, std::chrono::nanoseconds opening = {});
  /// Counts time in which a thread had no work.
  void add_idle(std::chrono::nanoseconds time);
  /// Whether `time` exceeds that of every sample so far.
  [[nodiscard]] bool is_slowest(std::chrono::nanoseconds time) const noexcept {
    return time.count() > slowest_ns_.load(std::memory_order_relaxed);
  }
  void add_slowest(std::chrono::nanoseconds time, const std::string& sample);

  /// Counts an answer that the consumer gets now, and asked for at `asked`.
  /// @param used    time since the previous answer in the same epoch.
  /// @param ready   batches that were ready when it asked.
  /// @param waited  time from `asked` to the answer; 0 if that was ready.
  void add_answer(Clock::time_point asked, std::chrono::nanoseconds used, std::size_t ready,
                  std::chrono::nanoseconds waited);
  /// Counts the consumer's time after the last answer, when it asks for no other batch.
  void add_use(std::chrono::nanoseconds used);
  /// Counts a batch that the consumer got, and the bad samples left out of it.
  void add_batch(const Batch& batch, std::uint64_t bad_samples);

  [[nodiscard]] Loader::Stats stats() const;

 private:
  struct Kind {
    std::uint64_t images = 0;
    std::uint64_t number = 0;  // of the first sample
    std::string first_sample;
  };

  void add_forgiven(const Forgiven& image) SHARDWISE_REQUIRES(mutex_);
  void keep(const TraceEvent& event) SHARDWISE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  Loader::Stats stats_ SHARDWISE_GUARDED_BY(mutex_);
  std::uint64_t answers_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::uint64_t ready_ SHARDWISE_GUARDED_BY(mutex_) = 0;  // summed over the answers
  std::map<std::string, Kind> forgiven_ SHARDWISE_GUARDED_BY(mutex_);
  Kind other_forgiven_ SHARDWISE_GUARDED_BY(mutex_);  // of kinds beyond those kept
  std::atomic<std::int64_t> slowest_ns_{0};           // written under mutex_
  // A ring: once it is full, next_event_ is the oldest event.
  std::vector<TraceEvent> events_ SHARDWISE_GUARDED_BY(mutex_);
  std::size_t max_events_ SHARDWISE_GUARDED_BY(mutex_) = 0;
  std::size_t next_event_ SHARDWISE_GUARDED_BY(mutex_) = 0;
};

}  // namespace shardwise::detail
