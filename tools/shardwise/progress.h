#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "shardwise/base/progress.h"

namespace shardwise::tools {

enum class Unit : std::uint8_t { kBytes, kSamples };

/// The state of a long operation.
struct ProgressState {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  Unit unit = Unit::kSamples;
  double seconds = 0;  ///< since the first update
  std::string detail;  ///< e.g. "12 of 100 shards"; may be empty
};

/// Returns e.g. "[=====>    ]  45 %  1.2 GiB/s  0:12 left  12 of 100 shards", with at most `width`
/// columns.
std::string progress_bar(std::string_view verb, const ProgressState& state, std::size_t width);

/// Returns e.g. "indexing: 45 %, 1.2 GiB/s, 0:12 left, 12 of 100 shards".
std::string progress_line(std::string_view verb, const ProgressState& state);

/// Shows the progress of an operation on standard error: a bar on a terminal, a plain line every
/// ten seconds elsewhere, nothing if quiet. Threads: one.
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
  /// Erases the bar, so that other text can be printed.
  void clear();

  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  const std::string verb_;
  const Unit unit_;
  const bool terminal_;
  const bool quiet_;
  const Clock::time_point start_ = Clock::now();
  // The work may begin long after start_, e.g. when all shards have been looked up.
  std::optional<Clock::time_point> first_update_;
  Clock::time_point next_ = start_;
  bool drawn_ = false;
};

}  // namespace shardwise::tools
