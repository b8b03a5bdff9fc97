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
  /// The program and its arguments, the same for each rank. No shell, no PATH: arguments[0] is a
  /// path.
  std::vector<std::string> arguments;
  /// Added to each rank's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  /// Once a rank has failed the others get SIGTERM, and SIGKILL after this time. After a signal
  /// that was passed on the time begins when the first rank has failed, or was ended by it.
  std::chrono::milliseconds grace{10'000};
};

/// How one rank ended.
struct RankExit {
  int exit_code = 0;           ///< -1 if a signal ended it
  int signal = 0;              ///< 0 if none
  bool stopped_by_us = false;  ///< it got a signal from here before it ended
};

struct LocalRanksResult {
  std::vector<RankExit> ranks;
  int first_failed = -1;     ///< the rank that failed first; -1 if none
  int forwarded_signal = 0;  ///< SIGINT, SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2, passed on

  bool ok() const noexcept { return first_failed < 0; }
};

/// Runs a program as `num_ranks` ranks on this machine and waits for all of them.
///
/// Each rank finds the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...), so
/// init_process_group() needs nothing more. The ranks meet under a random number that only they
/// have: starts beside each other never mix. If a rank fails the others are ended;
/// if this process is killed the ranks get SIGTERM from the kernel. SIGINT, SIGTERM, SIGHUP,
/// SIGUSR1 and SIGUSR2 are passed on to the ranks while it runs. It returns when no rank is left.
///
/// Threads: call it from the main thread, before others are made that take these signals.
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
