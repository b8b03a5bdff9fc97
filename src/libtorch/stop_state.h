#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fork.h"
#include "libtorch/stop_signals.h"
#include "shardwise/base/cancel.h"

// How the ranks of a run stop together. In the header of each group call, each rank sends why it
// wants to stop (StopWord). After the call all ranks have the same word: the largest of all calls
// so far. should_stop() thus returns the same on every rank after the same step.
//
// The phase of the training loop (StopPhase) decides in which state a stop leaves the loop:
//
//                     kAveraged
//     kComputing ------------------> kUpdating
//          |     <------------------     |
//          |           kWentOn           |
//          |                             |
//          +-------------+---------------+
//            kGaveUp     |     kTore
//               +--------+--------+
//               v                 v
//           kGivenUp            kTorn
//               |                 |
//               | kLeft           | kLeft
//               v                 v
//          kTakenBack         kSpoiled
//
//   kUpdating    The loop changes the parameters. The next call of the group or the loader, or of
//                should_stop(), shows that it has finished (kWentOn). The step is then whole.
//   kGaveUp      Within a step, a rank throws or ends its wait. All ranks leave the call that they
//                are in. The event is kTore if rank 0 did this in kUpdating.
//   kGivenUp,    No call of the group can be made, until all ranks have left the work of
//   kTorn        StopGuard::run() (kLeft).
//   kTakenBack,  The loaders are back at the end of the last whole step. In kSpoiled the parameters
//   kSpoiled     are not, so no checkpoint is written. Only another kGaveUp or kTore leads out of
//                these phases.

namespace shardwise::libtorch::detail {

/// Why a rank wants to stop. If levels differ between ranks, all ranks use the largest.
enum class StopLevel : std::uint8_t { kGoOn, kAsked, kSignal, kFailed };

enum class StopPhase : std::uint8_t {
  kComputing,
  kUpdating,
  kGivenUp,
  kTorn,
  kTakenBack,
  kSpoiled
};

enum class StopEvent : std::uint8_t {
  kAveraged,  ///< all ranks have the averaged gradients of a step
  kWentOn,    ///< the loop has changed the parameters and continues
  kGaveUp,    ///< a rank gave up its step, and all ranks left the call that they were in
  kTore,      ///< rank 0 gave up while it changed its parameters
  kLeft       ///< all ranks have left their loops
};

struct StopWord {
  StopLevel level = StopLevel::kGoOn;
  std::uint8_t exit_code = 0;
  std::string reason;

  explicit operator bool() const noexcept { return level != StopLevel::kGoOn; }
  /// True if ranks also give up waits for data, and evaluations. Otherwise they stop after the
  /// step.
  [[nodiscard]] bool is_at_once() const noexcept { return level >= StopLevel::kSignal; }
};

/// The state that a StopGuard shares with the process group, which sends this rank's word to the
/// other ranks.
///
/// Threads: any thread may call ask() and read this rank's own word. All other calls belong to the
/// thread that makes the group's calls.
class StopState {
 public:
  StopState(std::chrono::milliseconds max_time, std::chrono::milliseconds save_every);

  SignalNote& note() noexcept { return note_; }
  [[nodiscard]] const CancelToken::Flag& flag() const noexcept { return note_.flag; }

  void ask(const std::string& reason);
  void fail(const std::string& reason);
  /// Returns this rank's word.
  [[nodiscard]] StopWord own() const;
  /// Returns own().is_at_once().
  /// Cost: two loads.
  [[nodiscard]] bool wants_to_stop_at_once() const noexcept;

  /// Adopts the word that the ranks agreed on, if it is larger than the current word.
  void agree(const StopWord& word);
  [[nodiscard]] const StopWord& agreed() const noexcept { return agreed_; }

  /// Returns true if a checkpoint is due by this rank's clock.
  [[nodiscard]] bool is_save_due() const noexcept;
  /// Records that a checkpoint is due on all ranks, by rank 0's clock.
  void agree_on_save() noexcept { saves_ = true; }
  /// Returns true if a checkpoint is due on all ranks. Later calls return false until the next one
  /// is due.
  bool take_save() noexcept;

  void happen(StopEvent event) noexcept;
  [[nodiscard]] bool is_updating() const noexcept { return phase_ == StopPhase::kUpdating; }
  [[nodiscard]] bool is_closed() const noexcept {
    return phase_ == StopPhase::kGivenUp || phase_ == StopPhase::kTorn;
  }
  [[nodiscard]] bool gave_up_step() const noexcept { return phase_ >= StopPhase::kGivenUp; }
  [[nodiscard]] bool can_save() const noexcept {
    return phase_ != StopPhase::kTorn && phase_ != StopPhase::kSpoiled;
  }
  [[nodiscard]] std::uint64_t num_whole_steps() const noexcept { return num_whole_steps_; }

  /// Declares that this process counts steps. Code that averages gradients calls it before the
  /// first step.
  /// Threads: any.
  static void count_steps() noexcept;
  [[nodiscard]] static bool counts_steps() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool is_late() const noexcept { return deadline_ && Clock::now() >= *deadline_; }

  const std::chrono::milliseconds max_time_;
  const std::optional<Clock::time_point> deadline_;
  const std::chrono::milliseconds save_every_;
  Clock::time_point last_save_;
  SignalNote note_;
  std::atomic<StopLevel> asked_{StopLevel::kGoOn};
  mutable Mutex mutex_;
  std::string reason_ SHARDWISE_GUARDED_BY(mutex_);

  StopWord agreed_;
  StopPhase phase_ = StopPhase::kComputing;
  bool saves_ = false;
  std::uint64_t num_whole_steps_ = 0;
};

}  // namespace shardwise::libtorch::detail

namespace shardwise::libtorch {
using detail::StopEvent;
using detail::StopLevel;
using detail::StopState;
using detail::StopWord;
}  // namespace shardwise::libtorch
