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

/// Makes all ranks of a run stop together, after the same step. They stop on a signal, when the
/// time is over, on request, or when a rank fails.
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
/// Every call of the group carries the requests of each rank, so a step needs no collective besides
/// that of its gradients. All ranks get the same answers from should_stop(), reason() and
/// exit_code() between the same two calls.
///
/// Signals: a signal ends its rank's waits for batches and for absent ranks within 0.5 s. While
///   ranks are absent, it stays up to 5 s to notify those that appear. An evaluation ends after its
///   current batch, without a result. If token() is passed as Dataset::Options::cancel, fetches
///   end, too. A second SIGINT, or a second SIGTERM, more than a second after the first ends the
///   process at once. Copies of a signal that a launcher forwards do not count as second ones.
///
/// Lifetime: one guard per process, made before its group and destroyed after it. All ranks need
///   one: pass it to init_process_group() or adopt_process_group() (adopt.h). If signals may come
///   late, e.g. from a scheduler, make the guard by `new` in main() and never destroy it. Otherwise
///   a SIGUSR1 that arrives while a finished process exits kills it.
/// Threads: request(), token() and destruction of tokens: any thread. Everything else: the thread
///   of the group's calls.
/// Effects: installs handlers for the signals, which only set flags; the destructor restores the
///   former ones. If SIGINT or SIGHUP is ignored, as in background jobs and under nohup, it stays
///   ignored. SIGPIPE is ignored meanwhile, unless the program handles it. A rank that hung, and
///   was given up by the others, then gets an error when it writes to them, instead of SIGPIPE.
class SHARDWISE_EXPORT StopGuard {
 public:
  struct Options {
    /// Signals on which all ranks stop, even if only one rank gets one.
    std::vector<int> signals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    /// The ranks stop when this time has passed on one of them since construction. 0 means never.
    std::chrono::milliseconds max_time{0};
    /// Interval after which should_save() is true, by rank 0's clock. 0 means never.
    std::chrono::milliseconds save_every{0};
  };

  /// Errors: InvalidArgument for a signal that cannot be handled, or if there already is a guard.
  StopGuard();
  explicit StopGuard(const Options& options);
  ~StopGuard();
  StopGuard(const StopGuard&) = delete;
  StopGuard& operator=(const StopGuard&) = delete;

  /// Asks all ranks to stop after a step. The first reason of a rank is used. Threads: any.
  void request(const std::string& reason);

  /// True once the ranks know that they stop. Call it after each step. The answer is the same on
  /// all ranks after the same call of the group. With one rank it is true at once. Cost: some
  /// loads.
  [[nodiscard]] bool should_stop();

  /// True once whenever a checkpoint is due (Options::save_every). If called after each step, the
  /// answer is the same on all ranks. Cost: see should_stop().
  [[nodiscard]] bool should_save();

  /// Runs a training loop, and makes all ranks leave it together. Every rank must call it.
  ///
  /// If `work` throws on a rank, or a signal ends a wait, the rank abandons its step. It tells the
  /// others in their next call of the group. The others leave `work` by an exception then. No rank
  /// changes its parameters in that step.
  ///
  /// Afterwards, Loader::state() returns the state after the last whole step, so a checkpoint is
  /// exact. A step is whole when its gradients were averaged. In a process without a
  /// GradientAverager it is whole when the next batch was requested.
  ///
  /// @param save  called on all ranks after `work`, if they stop before its end. It may use the
  ///   group. It is not called if a rank is lost, or rank 0 failed while it changed parameters.
  /// Errors: the exception of `work` on the rank where it was thrown, and kDistributed with that
  ///   rank and text on the others. Likewise for `save`. The errors of ProcessGroup. Stops for
  ///   other reasons are not errors.
  void run(const std::function<void()>& work, const std::function<void()>& save = nullptr);

  /// The reason why the ranks stop, e.g. "SIGTERM (rank 3)"; empty if they do not stop.
  [[nodiscard]] std::string reason() const;
  /// Returns 0, or 128 plus the signal's number, e.g. 130 for SIGINT, or 1 after an error. The
  /// value is equal on all ranks once they know of the stop.
  [[nodiscard]] int exit_code() const;
  /// A token that is cancelled once this rank gets one of the signals.
  [[nodiscard]] CancelToken token() const noexcept;

 private:
  friend struct GroupAccess;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::libtorch
