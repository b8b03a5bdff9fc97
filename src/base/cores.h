#pragma once

#include <string>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Returns how many cores this process may use, at least 1. That is the size of its affinity mask,
/// which taskset, containers and launchers set. CPU quotas of its control groups reduce it;
/// `docker run --cpus` and Kubernetes set those.
SHARDWISE_EXPORT unsigned usable_cores() noexcept;

/// Converts CPU time limits of control groups to cores, rounded up. Without a limit it returns the
/// largest unsigned number.
/// @param membership  a file in the format of /proc/self/cgroup.
/// @param root        mount point of the control groups: of version 2, or of version 1 in its
///   folder "cpu".
SHARDWISE_EXPORT unsigned cores_by_groups(const std::string& membership, const std::string& root);

/// Returns the cores for one of `num_ranks` ranks that share a machine. At least 1.
/// @param own          cores that the rank may use.
/// @param of_launcher  cores of the process that started the ranks. It has more than `own` if it
///   bound each rank to a part of them, as srun and mpirun do.
SHARDWISE_EXPORT unsigned cores_of_rank(unsigned own, unsigned of_launcher,
                                        unsigned num_ranks) noexcept;
/// Uses the cores of this process and of its parent.
SHARDWISE_EXPORT unsigned cores_of_rank(unsigned num_ranks) noexcept;

}  // namespace shardwise::detail

namespace shardwise {
using detail::cores_of_rank;
using detail::usable_cores;
}  // namespace shardwise
