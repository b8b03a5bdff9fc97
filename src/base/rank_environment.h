#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Which of how many this process is, and where the ranks meet: what a launcher left in the
/// environment.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< among the ranks of this machine
  int local_world_size = 1;  ///< ranks on this machine; 1 where the launcher does not say
  std::string launcher;      ///< "torchrun", "Open MPI", "Slurm", "PMI" or "none"
  std::string master_address;
  std::uint16_t master_port = 0;
  /// The launcher's own store listens at the address (torchrun): rank 0 is a client like the
  /// others.
  bool launcher_store = false;
  /// Tells one start of the ranks from the next, where they meet in the same store.
  std::string attempt;
};

/// Looks up one variable; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the launcher's variables; the first set that is there counts.
/// shardwise/libtorch/process_group.h lists them.
///
/// Errors: kDistributed, naming the variable, if one of a set is missing, is no number, or
///   contradicts another.
SHARDWISE_EXPORT RankEnvironment rank_environment();
/// Reads other variables than this process's.
SHARDWISE_EXPORT RankEnvironment rank_environment(const Environment& get);

/// "rank 3 of 8".
SHARDWISE_EXPORT std::string describe(const RankEnvironment& environment);

}  // namespace shardwise::detail

namespace shardwise {
using detail::describe;
using detail::Environment;
using detail::rank_environment;
using detail::RankEnvironment;
}  // namespace shardwise
