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
  /// The program and its arguments, the same for each rank. arguments[0] is a path: no shell is
  /// used, and PATH is not searched.
  std::vector<std::string> arguments;
  /// Variables added to each rank's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  /// If a rank fails, the others get SIGTERM, and SIGKILL after this time. If this process has
  /// forwarded a signal, the time starts when the first rank fails, or is killed by the signal.
  std::chrono::milliseconds grace{10'000};
};

/// How one rank ended.
struct RankExit {
  int exit_code = 0;           ///< -1 if a signal killed it
  int signal = 0;              ///< 0 if no signal killed it
  bool stopped_by_us = false;  ///< this process sent it a signal before it ended
};

struct LocalRanksResult {
  std::vector<RankExit> ranks;
  int first_failed = -1;     ///< the rank that failed first; -1 if no rank failed
  int forwarded_signal = 0;  ///< the last forwarded signal, e.g. SIGTERM; 0 if none was forwarded

  bool ok() const noexcept { return first_failed < 0; }
};

/// Runs a program as `num_ranks` ranks on this machine and waits for all of them.
///
/// Each rank gets torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...), so that
/// init_process_group() needs no arguments. The ranks of a run share a random ID, so that
/// concurrent runs do not mix.
///
/// If a rank fails, this function ends the other ranks. If this process is killed, the kernel sends
/// SIGTERM to the ranks. During the call, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are
/// forwarded to the ranks. The call returns when all ranks have ended.
///
/// Threads: call it from the main thread, before starting threads that would receive these signals.
/// Errors: InvalidArgument; kIo if a process cannot be started; kDistributed if a build without
/// c10d is to run several ranks.
SHARDWISE_EXPORT LocalRanksResult run_local_ranks(const LocalRanksOptions& options);

}  // namespace shardwise::libtorch::detail

namespace shardwise::libtorch {
using detail::LocalRanksOptions;
using detail::LocalRanksResult;
using detail::RankExit;
using detail::run_local_ranks;
}  // namespace shardwise::libtorch
