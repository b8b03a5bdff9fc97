#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/fork.h"
#include "shardwise/base/progress.h"

namespace shardwise::tools {

enum class Unit : std::uint8_t { kBytes, kSamples };

/// The state of a long operation.
struct ProgressState {
  std::uint64_t done = 0;
  std::uint64_t total = 0;  ///< 0 if it is not known yet
  Unit unit = Unit::kSamples;
  double seconds = 0;  ///< since the first update
  std::string detail;  ///< e.g. "12 of 100 shards"; may be empty
};

// If nothing is left, or if the time left is unknown, the texts have "0:12 so far" instead.

/// Returns e.g. "[=====>    ]  45 %  1.2 GiB/s  0:12 left  12 of 100 shards", with at most `width`
/// columns.
std::string progress_bar(std::string_view verb, const ProgressState& state, std::size_t width);

/// Returns e.g. "indexing: 45 %, 1.2 GiB/s, 0:12 left, 12 of 100 shards".
std::string progress_line(std::string_view verb, const ProgressState& state);

/// Shows the progress of an operation on standard error: a bar on a terminal, a plain line every
/// ten seconds elsewhere, nothing if quiet. A bar is drawn only while can_draw_now() is true. If
/// there is no update, a thread shows the time passed every second on a terminal. Threads: any.
class Progress {
 public:
  Progress(std::string verb, Unit unit, bool quiet);
  /// Erases the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Cost: small; draws only at intervals.
  void update(std::uint64_t done, std::uint64_t total, const std::function<std::string()>& detail);
  /// Returns a callback that updates the progress by bytes.
  ProgressCallback of_bytes();
  /// Erases the bar, so that other text can be printed. The next update draws it again.
  void clear();

  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  /// Work of the thread.
  void draw_while_idle();
  void draw(Clock::time_point now) SHARDWISE_REQUIRES(mutex_);

  const std::string verb_;
  const bool terminal_;
  const bool quiet_;
  const Clock::time_point start_ = Clock::now();

  LongMutex mutex_;  // held while the bar is drawn, as a terminal may be slow
  std::condition_variable_any changed_;
  // The state that is shown. Its numbers and its detail come from one update.
  ProgressState state_ SHARDWISE_GUARDED_BY(mutex_);
  // The work may begin long after start_, e.g. when all shards have been looked up.
  std::optional<Clock::time_point> first_update_ SHARDWISE_GUARDED_BY(mutex_);
  Clock::time_point drawn_at_ SHARDWISE_GUARDED_BY(mutex_);
  bool cleared_ SHARDWISE_GUARDED_BY(mutex_) = false;
  bool ended_ SHARDWISE_GUARDED_BY(mutex_) = false;
  WorkerThreads thread_;
};

}  // namespace shardwise::tools
