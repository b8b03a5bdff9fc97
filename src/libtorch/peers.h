#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/rank_environment.h"
#include "libtorch/rendezvous/peer_probe.h"
#include "libtorch/rendezvous/rendezvous.h"

namespace shardwise::libtorch::detail {

/// The ranks of a group, for errors and for finding out which rank is lost.
struct Peers {
  RankEnvironment environment;  ///< of this rank
  std::vector<RankInfo> ranks;  ///< by rank; empty if this process is alone
  /// nullopt if the ranks do not reach each other; then a lost rank cannot be found.
  std::optional<PeerProbe> probe;
  PeerProbe::Options letters;

  /// Sets the environment's local rank and local world size.
  void find_local_ranks();

  /// Returns the host name of the rank.
  [[nodiscard]] std::string host_of(int rank) const;

  /// Returns e.g. "rank 1 of 3 (host b, process 811)".
  [[nodiscard]] std::string name_of(std::size_t rank) const;

  /// Returns true if all ranks reach each other's probes. Collective; all ranks must call it at the
  /// same time.
  [[nodiscard]] bool reach_each_other();

  /// Asks the other ranks who is lost.
  /// @param reason   why the call failed.
  /// @param history  the last calls, for the error.
  /// Errors: kDistributed, always.
  [[noreturn]] void throw_lost(const std::string& action, const std::string& reason,
                               const std::string& history);
};

/// Returns the text of an exception, without LibTorch's stack trace.
std::string text_of(const std::exception& e);
/// Returns the first line of text_of(), with control characters escaped.
std::string reason_of(const std::exception& e);

}  // namespace shardwise::libtorch::detail
