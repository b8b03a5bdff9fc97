#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/rank_environment.h"
#include "libtorch/rendezvous/peer_probe.h"
#include "libtorch/rendezvous/rendezvous.h"

namespace shardwise::libtorch::detail {

/// The ranks of a group, for error texts and for finding out which rank is lost.
struct Peers {
  RankEnvironment environment;  ///< this rank's
  std::vector<RankInfo> ranks;  ///< one per rank; empty if this process is alone
  /// Empty if the ranks cannot reach each other. Errors then do not name a lost rank.
  std::optional<PeerProbe> probe;
  PeerProbe::Options letters;

  /// Sets the environment's local rank and local world size.
  void find_local_ranks();

  /// Returns the host name of the rank.
  [[nodiscard]] std::string host_of(int rank) const;

  /// Returns e.g. "rank 1 of 3 (host b, process 811)".
  [[nodiscard]] std::string name_of(std::size_t rank) const;

  /// Returns true if the ranks' probes all reach each other. Collective: all ranks call it at the
  /// same time.
  [[nodiscard]] bool reach_each_other();

  /// Asks the other ranks which rank is lost, and throws.
  /// @param reason   why the call failed.
  /// @param history  the last calls, for the error.
  /// Errors: kDistributed, always.
  [[noreturn]] void throw_lost(const std::string& action, const std::string& reason,
                               const std::string& history);
};

/// Returns the text of an exception, without LibTorch's stack trace.
std::string text_of(const std::exception& e);
/// Returns the first line of text_of(), with escaped control characters.
std::string reason_of(const std::exception& e);

}  // namespace shardwise::libtorch::detail
