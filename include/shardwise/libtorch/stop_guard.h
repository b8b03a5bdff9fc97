#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"

namespace shardwise::libtorch {

/// Makes all ranks of a run stop together, after the same step: on a signal, after a time limit, on
/// request, or if a rank fails.
///
///     StopGuard guard({.max_time = std::chrono::hours(8)});
///     const auto group = init_process_group({.guard = &guard});
///     guard.run(
///         [&] {
///           for (auto epoch : images.epochs(90)) {
///             for (auto& batch : epoch) {
///               step(model, batch);                        // with GradientAverager::average()
///               if (guard.should_stop()) return;
///             }
///           }
///         },
///         [&] { write_checkpoint(images.loader().state()); });  // if it stops before the end
///     return guard.exit_code();
///
/// Every call of the group carries the stop requests of all ranks, so a step needs no additional
/// collective call. Between the same two calls of the group, should_stop(), reason() and
/// exit_code() return the same values on all ranks.
///
/// Signals: a signal ends the rank's waits for batches, and for ranks that have not connected yet,
///   within 0.5 s. While ranks have not connected, the rank stays up to 5 s to notify those that
///   appear. An evaluation ends after its current batch, without a result. If token() is passed as
///   Dataset::Options::cancel, fetches end, too. A second SIGINT, or a second SIGTERM, that arrives
///   more than a second after the first ends the process at once. A copy of the first signal that a
///   launcher forwards does not count as a second one.
///
/// Lifetime: one guard per process, constructed before its group and destroyed after it. All ranks
///   need a guard: pass it to init_process_group() or adopt_process_group() (adopt.h). If signals
///   may arrive late, e.g. from a scheduler, make the guard by `new` in main() and never destroy
///   it. Otherwise a SIGUSR1 that arrives while a finished process exits kills the process.
/// Threads: request() and token() may be called, and tokens destroyed, on any thread. Call all
///   other methods on the thread of the group's calls.
/// Effects: installs handlers for the signals, which only set flags; the destructor restores the
///   former ones. If SIGINT or SIGHUP is ignored, as in background jobs and under nohup, it stays
///   ignored. While the guard lives, SIGPIPE is ignored, unless the program handles it. A rank that
///   the others gave up because it hung then gets an error when it writes to them, instead of
///   SIGPIPE.
class SHARDWISE_EXPORT StopGuard {
 public:
  struct Options {
    /// Signals on which all ranks stop, even if only one rank gets the signal.
    std::vector<int> signals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    /// The ranks stop when this time has passed on any rank since its guard was constructed. 0
    /// means no limit.
    std::chrono::milliseconds max_time{0};
    /// Interval at which should_save() is true, measured by rank 0's clock. 0 means never.
    std::chrono::milliseconds save_every{0};
  };

  /// Errors: InvalidArgument for a signal that cannot be handled, or if there already is a guard.
  StopGuard();
  explicit StopGuard(const Options& options);
  ~StopGuard();
  StopGuard(const StopGuard&) = delete;
  StopGuard& operator=(const StopGuard&) = delete;

  /// Asks all ranks to stop after a step. If a rank calls it several times, its first reason is
  /// used. Threads: any.
  void request(const std::string& reason);

  /// True once all ranks have agreed to stop. Call it after each step. After the same call of the
  /// group, the result is the same on all ranks. With one rank it is true at once. Cost: some loads
  /// from memory.
  [[nodiscard]] bool should_stop();

  /// Returns true once per interval Options::save_every, when a checkpoint is due. If called after
  /// each step, the result is the same on all ranks. Cost: see should_stop().
  [[nodiscard]] bool should_save();

  /// Runs a training loop, and makes all ranks leave it together. Every rank must call it.
  ///
  /// If `work` throws on a rank, or a signal ends a wait, the rank abandons its step. The other
  /// ranks learn this in their next call of the group, which throws an exception through `work`. No
  /// rank changes its parameters in that step.
  ///
  /// Afterwards, Loader::state() returns the state after the last complete step, so a checkpoint is
  /// exact. A step is complete when its gradients were averaged. Without a GradientAverager, a step
  /// is complete when the next batch is requested.
  ///
  /// @param save  called on all ranks after `work`, if they stop before the end of `work`. It may
  ///   use the group. It is not called if a rank is lost, or if rank 0 failed while it was changing
  ///   parameters.
  /// Errors: if `work` or `save` throws on a rank, this rank rethrows the exception, and the others
  ///   throw kDistributed with that rank and text. The errors of ProcessGroup. A stop for another
  ///   reason is not an error.
  void run(const std::function<void()>& work, const std::function<void()>& save = nullptr);

  /// The reason why the ranks stop, e.g. "SIGTERM (rank 3)"; empty if they do not stop.
  [[nodiscard]] std::string reason() const;
  /// Returns 0, or 128 plus the signal's number, e.g. 130 for SIGINT, or 1 after an error. The
  /// value is equal on all ranks once they have agreed to stop.
  [[nodiscard]] int exit_code() const;
  /// A token that is cancelled once this rank gets one of the signals.
  [[nodiscard]] CancelToken token() const noexcept;

 private:
  friend struct GroupAccess;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::libtorch
