#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fork.h"
#include "shardwise/base/cancel.h"

namespace shardwise::libtorch::detail {

/// Why a rank wants to stop. The larger one counts.
enum class StopLevel : std::uint8_t { kGoOn, kAsked, kSignal, kFailed };

struct StopWord {
  StopLevel level = StopLevel::kGoOn;
  std::uint8_t exit_code = 0;
  std::string reason;

  explicit operator bool() const noexcept { return level != StopLevel::kGoOn; }
  /// Whether waits for data and evaluations are given up for it; else ranks leave after the step.
  [[nodiscard]] bool is_at_once() const noexcept { return level >= StopLevel::kSignal; }
};

/// When a signal came first, and from whom.
struct FirstPress {
  std::atomic<bool> is_there{false};
  std::atomic<int> sender{0};  // a process; 0: the terminal
  std::atomic<std::int64_t> time_ms{0};
};

/// What a signal handler writes, and all that it touches.
struct SignalNote {
  std::atomic<int> signal{0};  // the first that came
  CancelToken::Flag flag{false};
  // Each is counted by itself: a second one ends the process, whatever came before the first.
  FirstPress interrupt;  // of SIGINT
  FirstPress terminate;  // of SIGTERM
};

/// What a StopGuard shares with the process group that carries its word to the other ranks.
///
/// Threads: ask(), and what only reads this rank's own word, any; all else the thread that makes
/// the group's calls.
class StopState {
 public:
  StopState(std::chrono::milliseconds max_time, std::chrono::milliseconds save_every);

  SignalNote& note() noexcept { return note_; }
  [[nodiscard]] const CancelToken::Flag& flag() const noexcept { return note_.flag; }

  void ask(const std::string& reason);
  void fail(const std::string& reason);
  /// What this rank says to the others.
  [[nodiscard]] StopWord own() const;
  /// As own().is_at_once(). Cost: two loads.
  [[nodiscard]] bool wants_to_stop_at_once() const noexcept;

  /// Takes what the ranks agreed on, unless something larger was before.
  void agree(const StopWord& word);
  [[nodiscard]] const StopWord& agreed() const noexcept { return agreed_; }

  /// Whether this rank's clock says that a checkpoint is due.
  [[nodiscard]] bool is_save_due() const noexcept;
  /// The ranks know that a checkpoint is due, by rank 0's clock.
  void agree_on_save() noexcept { saves_ = true; }
  /// True if they do; then it is not any more.
  bool take_save() noexcept;

  /// From now on no call of the group is made: a rank gave up the one that all were at.
  void close(bool can_save) noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }
  /// Calls may be made again: all ranks are out of their loops.
  void reopen() noexcept { closed_ = false; }
  [[nodiscard]] bool gave_up_step() const noexcept { return gave_up_; }
  /// False if rank 0 failed while its parameters were changed.
  [[nodiscard]] bool can_save() const noexcept { return can_save_; }

  /// Whoever averages gradients says here, before the first step, that steps are counted in this
  /// process. Any thread.
  static void count_steps() noexcept;
  [[nodiscard]] static bool counts_steps() noexcept;
  /// The gradients of a step were averaged on all ranks: the step is whole, once the parameters
  /// are changed.
  void begin_update() noexcept {
    ++num_whole_steps_;
    updates_ = true;
  }
  void end_update() noexcept { updates_ = false; }
  [[nodiscard]] bool updates() const noexcept { return updates_; }
  [[nodiscard]] std::uint64_t num_whole_steps() const noexcept { return num_whole_steps_; }

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
  bool closed_ = false;
  bool gave_up_ = false;
  bool can_save_ = true;
  bool updates_ = false;
  bool saves_ = false;
  std::uint64_t num_whole_steps_ = 0;
};

}  // namespace shardwise::libtorch::detail

namespace shardwise::libtorch {
using detail::StopLevel;
using detail::StopState;
using detail::StopWord;
}  // namespace shardwise::libtorch
