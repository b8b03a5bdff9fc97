#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Which of how many this process is: what a launcher left in the environment.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< among the ranks of this machine
  int local_world_size = 1;  ///< ranks on this machine
  /// The launcher says both. Otherwise they are 0 and 1 here, and the ranks find out who shares a
  /// machine when they meet.
  bool knows_local = true;
  std::string
      launcher;  ///< "torchrun", "variables set by hand", "Open MPI", "Slurm", "PMI", "none"
};

/// Where the ranks of a job meet, and what tells them from those of another job.
struct MeetingPoint {
  std::string address;  ///< of rank 0's machine
  /// Rank 0 listens at the first of these that is free; the others look for it there.
  std::vector<std::uint16_t> ports;
  /// What all ranks of one start of the job know, and those of another do not. Empty where nothing
  /// tells two starts apart; then there is one port, which only one of them can have.
  std::string job;
};

/// Looks up one variable; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the launcher's variables; the first set that is there counts.
/// shardwise/libtorch/process_group.h lists them. Nothing else of the process is looked at.
///
/// Errors: kDistributed, naming the variables, if one of a set is missing, is no number, or
///   contradicts another.
SHARDWISE_EXPORT RankEnvironment rank_environment();
/// Reads other variables than this process's.
SHARDWISE_EXPORT RankEnvironment rank_environment(const Environment& get);

/// True in a batch script of Slurm, outside of a job step: its variables are those of rank 0, but
/// no other ranks will come, which rank_environment() calls an error.
SHARDWISE_EXPORT bool is_batch_script(const Environment& get);
SHARDWISE_EXPORT bool is_batch_script();

/// Where the ranks that `ranks` is one of meet.
/// @param starter  which process started the ranks, as launching_process() has it: MPICH and Intel
///   MPI give a job no number.
/// REQUIRES: ranks.world_size > 1, and `get` is what `ranks` was read from.
/// Errors: kDistributed, naming the variable to set.
SHARDWISE_EXPORT MeetingPoint meeting_point(const RankEnvironment& ranks, const Environment& get,
                                            std::string_view starter);
/// By this process's variables.
SHARDWISE_EXPORT MeetingPoint meeting_point(const RankEnvironment& ranks);

/// The process that started the ranks of this machine, told from every other of all time: the
/// nearest ancestor that has not the variable `rank_variable`. Empty if it cannot be told.
/// @param process  whose ancestors are meant; 0: this one's.
SHARDWISE_EXPORT std::string launching_process(std::string_view rank_variable, int process = 0);

/// "rank 3 of 8".
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
