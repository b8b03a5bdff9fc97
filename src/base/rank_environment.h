#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The rank of this process and the number of ranks, from the environment variables that a launcher
/// set.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< number among the ranks of this machine
  int local_world_size = 1;  ///< number of ranks on this machine
  /// True if the launcher sets local rank and local size. Otherwise these are 0 and 1 here, and the
  /// ranks find out which of them share a machine when they connect.
  bool knows_local = true;
  std::string
      launcher;  ///< "torchrun", "variables set by hand", "Open MPI", "Slurm", "PMI", "none"
};

/// The address at which the ranks of a job connect, and the name by which they recognise ranks of
/// their job.
struct MeetingPoint {
  std::string address;  ///< the machine of rank 0
  /// Rank 0 listens at the first free port of this list. The other ranks try the ports in order.
  std::vector<std::uint16_t> ports;
  /// A name that is the same on all ranks of one start of the job, and differs between starts. It
  /// is empty if no variable distinguishes two starts. `ports` then has only one port, which only
  /// one start can bind.
  std::string job;
};

/// Looks up one variable; returns nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the variables of the first launcher that set any. shardwise/libtorch/process_group.h lists
/// them. It reads no other state of the process.
///
/// Errors: kDistributed, naming the variables, if a variable of that launcher is missing, is not a
///   number, or contradicts another.
SHARDWISE_EXPORT RankEnvironment rank_environment();
/// Reads the variables through `get` instead of from this process's environment.
SHARDWISE_EXPORT RankEnvironment rank_environment(const Environment& get);

/// True in a Slurm batch script outside a job step. Its variables are those of rank 0, but no other
/// ranks will start. rank_environment() reports this as an error.
SHARDWISE_EXPORT bool is_batch_script(const Environment& get);
SHARDWISE_EXPORT bool is_batch_script();

/// Returns where the ranks of the job connect.
/// @param starter  the process that started the ranks, see launching_process(). It replaces the
///   job's number, which MPICH and Intel MPI do not set.
/// REQUIRES: ranks.world_size > 1, and `ranks` was read through `get`.
/// Errors: kDistributed, naming the variable to set.
SHARDWISE_EXPORT MeetingPoint meeting_point(const RankEnvironment& ranks, const Environment& get,
                                            std::string_view starter);
/// Uses the environment of this process.
SHARDWISE_EXPORT MeetingPoint meeting_point(const RankEnvironment& ranks);

/// Returns a text that identifies the process that started the ranks of this machine: the nearest
/// ancestor without the variable `rank_variable`. No later process gets the same text. Returns an
/// empty text if there is no such ancestor.
/// @param process  the process whose ancestors are searched; 0 means this process.
SHARDWISE_EXPORT std::string launching_process(std::string_view rank_variable, int process = 0);

/// Returns e.g. "rank 3 of 8".
SHARDWISE_EXPORT std::string describe(const RankEnvironment& environment);

}  // namespace shardwise::detail

namespace shardwise {
using detail::describe;
using detail::Environment;
using detail::is_batch_script;
using detail::launching_process;
using detail::meeting_point;
using detail::MeetingPoint;
using detail::rank_environment;
using detail::RankEnvironment;
}  // namespace shardwise
