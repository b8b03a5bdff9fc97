#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwise::detail {

/// The stages of a loader's thread; see Loader::Stats.
enum class Stage : std::uint8_t {
  kPlanning,
  kOpening,
  kReading,
  kDecoding,
  kTransforming,
  kFunctions,
  kCollating,
};
constexpr std::size_t kNumStages = 7;

/// Numbers of samples by the time that each took. [0]: below 1 us; [k]: from 2^(k - 1) us to below
/// 2^k us; the last one has no upper end.
using SampleTimes = std::array<std::uint64_t, 32>;

constexpr std::size_t sample_time_bucket(std::chrono::nanoseconds time) noexcept {
  const auto us = static_cast<std::uint64_t>(time.count() < 0 ? 0 : time.count() / 1000);
  const auto bucket = static_cast<std::size_t>(std::bit_width(us));
  return bucket < SampleTimes{}.size() ? bucket : SampleTimes{}.size() - 1;
}

/// Touches the pages of a mapped shard's bytes, so that waits for the disk count as reading and not
/// as decoding.
inline void read_pages(std::string_view bytes) noexcept {
  constexpr std::size_t kPageBytes = 4096;
  const volatile char* const begin = bytes.data();
  for (std::size_t at = 0; at < bytes.size(); at += kPageBytes) static_cast<void>(begin[at]);
  if (!bytes.empty()) static_cast<void>(begin[bytes.size() - 1]);
}

/// The defects that a decoder tolerated in one image.
struct Forgiven {
  std::vector<std::string> texts;
  std::uint64_t number = 0;  ///< number of the sample
  std::string sample;        ///< the sample's shard and key
};

/// The stage times of one thread while it makes the rows of a claim. The thread is in one stage at
/// a time. It reads the clock only when the stage changes, and not for columns whose rows take
/// little time.
class StageTimes {
 public:
  using Clock = std::chrono::steady_clock;

  /// Begins in the stage kReading.
  StageTimes() noexcept : begin_(Clock::now()), last_(begin_) {}

  /// Adds the time since the last call to the current stage, and enters `stage`.
  /// @return  the current time.
  Clock::time_point enter(Stage stage) noexcept {
    const Clock::time_point now = Clock::now();
    times_[static_cast<std::size_t>(stage_)] += now - last_;
    stage_ = stage;
    return last_ = now;
  }

  /// Moves time from the stage reading to the stage opening.
  void move_to_opening(std::chrono::nanoseconds time) noexcept {
    auto& reading = times_[static_cast<std::size_t>(Stage::kReading)];
    time = time < reading ? time : reading;
    reading -= time;
    times_[static_cast<std::size_t>(Stage::kOpening)] += time;
  }

  void add_bytes(std::size_t bytes) noexcept { bytes_read_ += bytes; }
  void add_samples(std::chrono::nanoseconds time_each, std::uint64_t count) noexcept {
    samples_[sample_time_bucket(time_each)] += count;
  }

  void add_forgiven(Forgiven what) { forgiven_.push_back(std::move(what)); }

  [[nodiscard]] Clock::time_point begin() const noexcept { return begin_; }
  [[nodiscard]] Clock::time_point last() const noexcept { return last_; }
  [[nodiscard]] const std::array<std::chrono::nanoseconds, kNumStages>& times() const noexcept {
    return times_;
  }
  [[nodiscard]] std::uint64_t bytes_read() const noexcept { return bytes_read_; }
  [[nodiscard]] const SampleTimes& samples() const noexcept { return samples_; }
  [[nodiscard]] const std::vector<Forgiven>& forgiven() const noexcept { return forgiven_; }

 private:
  Clock::time_point begin_;
  Clock::time_point last_;
  Stage stage_ = Stage::kReading;
  std::array<std::chrono::nanoseconds, kNumStages> times_{};
  std::uint64_t bytes_read_ = 0;
  SampleTimes samples_{};
  std::vector<Forgiven> forgiven_;
};

}  // namespace shardwise::detail
