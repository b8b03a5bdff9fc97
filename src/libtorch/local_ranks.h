#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise::libtorch::detail {

struct LocalRanksOptions {
  int num_ranks = 1;
  /// The program and its arguments, the same for each rank. arguments[0] is a path: neither a shell
  /// nor PATH is used.
  std::vector<std::string> arguments;
  /// Added to each rank's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  /// When a rank has failed, the others get SIGTERM, and SIGKILL after this time. After a forwarded
  /// signal, the time starts when the first rank has failed or died from that signal.
  std::chrono::milliseconds grace{10'000};
};

/// How one rank ended.
struct RankExit {
  int exit_code = 0;           ///< -1 if a signal ended it
  int signal = 0;              ///< 0 if none
  bool stopped_by_us = false;  ///< it got a signal from this process before it ended
};

struct LocalRanksResult {
  std::vector<RankExit> ranks;
  int first_failed = -1;     ///< the rank that failed first; -1 if no rank failed
  int forwarded_signal = 0;  ///< the last forwarded signal, e.g. SIGTERM; 0 if none was

  bool ok() const noexcept { return first_failed < 0; }
};

/// Runs a program as `num_ranks` ranks on this machine and waits for all of them.
///
/// Each rank gets the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...), so
/// init_process_group() needs nothing more. The ranks of a run share a random ID, so runs at the
/// same time never mix.
///
/// If a rank fails, the other ranks are ended. If this process is killed, the kernel sends SIGTERM
/// to the ranks. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to the ranks during the
/// call. It returns when all ranks have ended.
///
/// Threads: call it from the main thread, before starting threads that take these signals.
/// Errors: InvalidArgument; kIo if a process cannot be started; kDistributed for several ranks
/// without c10d.
SHARDWISE_EXPORT LocalRanksResult run_local_ranks(const LocalRanksOptions& options);

}  // namespace shardwise::libtorch::detail

namespace shardwise::libtorch {
using detail::LocalRanksOptions;
using detail::LocalRanksResult;
using detail::RankExit;
using detail::run_local_ranks;
}  // namespace shardwise::libtorch
