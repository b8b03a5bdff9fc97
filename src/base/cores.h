#pragma once

#include <string>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns how many cores this process may use, at least 1. It is the size of the affinity mask, or
/// the CPU quota of the control groups if that is smaller. taskset, containers and launchers set
/// the mask. `docker run --cpus` and Kubernetes set the quota.
SHARDWISE_EXPORT unsigned usable_cores() noexcept;

/// Converts CPU time limits of control groups to a number of cores, rounded up. Without a limit it
/// returns the largest unsigned number.
/// @param membership  a file in the format of /proc/self/cgroup.
/// @param root        the folder in which control groups are mounted: version 2 itself, or the
///   parent of version 1's folder "cpu".
SHARDWISE_EXPORT unsigned cores_by_groups(const std::string& membership, const std::string& root);

/// Returns the number of cores for one of `num_ranks` ranks that share a machine, at least 1.
/// @param own          number of cores that the rank may use.
/// @param of_launcher  number of cores that the process which started the ranks may use. It exceeds
///   `own` if that process bound each rank to a part of its cores, as srun and mpirun do.
SHARDWISE_EXPORT unsigned cores_of_rank(unsigned own, unsigned of_launcher,
                                        unsigned num_ranks) noexcept;
/// Computes the number for this process, from its own cores and those of its parent.
SHARDWISE_EXPORT unsigned cores_of_rank(unsigned num_ranks) noexcept;

}  // namespace shardwise::detail

namespace shardwise {
using detail::cores_of_rank;
using detail::usable_cores;
}  // namespace shardwise
