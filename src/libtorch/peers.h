#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/rank_environment.h"
#include "libtorch/rendezvous/peer_probe.h"
#include "libtorch/rendezvous/rendezvous.h"

namespace shardwise::libtorch::detail {

/// The ranks of a group as errors name them, and how to find out which of them is lost.
struct Peers {
  RankEnvironment environment;  ///< of this rank
  std::vector<RankInfo> ranks;  ///< by rank; empty if this process is alone
  /// Nothing: the ranks do not reach each other, so that nobody knows who is lost.
  std::optional<PeerProbe> probe;
  PeerProbe::Options letters;

  /// Adds to the environment who shares this machine.
  void find_local_ranks();

  /// The name of the rank's machine.
  [[nodiscard]] std::string host_of(int rank) const;

  /// "rank 1 of 3 (host b, process 811)".
  [[nodiscard]] std::string name_of(std::size_t rank) const;

  /// True if all ranks reach all others at their probes. Collective, at once on all ranks.
  [[nodiscard]] bool reach_each_other();

  /// Asks the other ranks who is lost.
  /// @param reason   what the call failed with.
  /// @param history  the last calls, for the error.
  /// Errors: kDistributed, always.
  [[noreturn]] void throw_lost(const std::string& action, const std::string& reason,
                               const std::string& history);
};

/// What an exception says, of LibTorch's without the stack trace.
std::string text_of(const std::exception& e);
/// Its first line, with control characters escaped.
std::string reason_of(const std::exception& e);

}  // namespace shardwise::libtorch::detail
