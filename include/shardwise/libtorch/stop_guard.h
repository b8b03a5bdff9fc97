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

/// Lets all ranks of a run stop together, after the same step: on a signal, when the time is over,
/// when somebody asks for it, or when a rank fails.
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
/// Every call of the group carries what each rank has to say, so that a step needs no collective
/// besides the one of its gradients. What is heard holds for all: the ranks get the same answers
/// from should_stop(), reason() and exit_code() between the same two calls.
///
/// A signal also ends what its rank waits for, within 0.5 s: batches of loaders over the group, and
/// ranks that do not come (there it stays up to 5 s, to tell those that come meanwhile). An
/// evaluation ends after the batch that it is at, and is thrown away.
/// With a Dataset::Options::cancel of token() fetching ends, too. A second SIGINT, or a second
/// SIGTERM, ends the process at once, whatever came before the first; one that a launcher passes on
/// is no second one.
///
/// One in a process, made before its group and destroyed after it. Where a signal may come late,
/// as from a scheduler, make it by `new` in main() and never destroy it: without its handlers a
/// SIGUSR1 that comes while a process ends kills it, though its work is done. The group has all
/// ranks of the run, each with a guard: give it to init_process_group() or to adopt_process_group()
/// (adopt.h).
/// Threads: request(), token() and destruction of tokens any; all else that of the group's calls.
/// Effects: handlers for the signals, which only set flags; the destructor puts the former ones
///   back. SIGINT and SIGHUP stay ignored where they are, as in background jobs and under nohup.
///   While it lives, SIGPIPE is ignored unless the program handles it: a rank that hung, and that
///   the others gave up, gets an error when it writes to them, and not that signal.
class SHARDWISE_EXPORT StopGuard {
 public:
  struct Options {
    /// Signals on which the ranks stop. One that a single rank gets is enough.
    std::vector<int> signals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    /// The ranks stop when this time has passed on one of them, counted from here. 0: never.
    std::chrono::milliseconds max_time{0};
    /// should_save() is true when this time has passed, by rank 0's clock. 0: never.
    std::chrono::milliseconds save_every{0};
  };

  /// Errors: InvalidArgument, for a signal that cannot be handled, or a second guard.
  StopGuard();
  explicit StopGuard(const Options& options);
  ~StopGuard();
  StopGuard(const StopGuard&) = delete;
  StopGuard& operator=(const StopGuard&) = delete;

  /// Asks all ranks to stop in good order. The first reason of a rank counts. Any thread.
  void request(const std::string& reason);

  /// True once the ranks know that they stop: to be asked after each step. The same on all ranks
  /// after the same call of the group; with one rank, at once. Cost: some loads.
  [[nodiscard]] bool should_stop();

  /// True when a checkpoint is due (Options::save_every), once each time. Asked after each step, it
  /// is the same on all ranks. Cost: as should_stop().
  [[nodiscard]] bool should_save();

  /// Runs a training loop, and sees that all ranks leave it together. Every rank calls it.
  ///
  /// A rank on which `work` throws, or a signal ends a wait, gives up the step that it is in, and
  /// tells the others in their next call of the group; there they leave `work` by an exception. So
  /// no rank changes its parameters in that step. ImageLoader::state() and Loader::state() then
  /// stand behind the last whole step, so that a checkpoint is exact: one whose gradients were
  /// averaged or, in a process that makes no GradientAverager, after which another batch was asked
  /// for.
  ///
  /// @param save  called on all ranks, after `work`, if they stop before its end. It may use the
  ///   group. Not called if a rank is lost, or rank 0 failed while it changed parameters.
  /// Errors: what `work` threw, on the rank on which it did, and kDistributed with rank and text on
  ///   the others; the same of `save`; those of ProcessGroup. A stop for another reason is none.
  void run(const std::function<void()>& work, const std::function<void()>& save = nullptr);

  /// Why the ranks stop, as "SIGTERM (rank 3)"; empty if they do not.
  [[nodiscard]] std::string reason() const;
  /// 0; 128 and the signal's number after a signal, as 130 for SIGINT; 1 after an error. The same
  /// on all ranks once they have heard of it.
  [[nodiscard]] int exit_code() const;
  /// Is cancelled once this rank gets one of the signals.
  [[nodiscard]] CancelToken token() const noexcept;

 private:
  friend struct GroupAccess;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwise::libtorch
