#pragma once

#include <string>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The cores that this process may use: those of its affinity, as taskset, a container or a
/// launcher set it; no more than the limits on CPU time of its control groups allow, as
/// `docker run --cpus` and Kubernetes set them. At least 1.
SHARDWISE_EXPORT unsigned usable_cores() noexcept;

/// Converts CPU time limits of control groups to cores, rounded up. Without a limit it returns the
/// largest unsigned number.
/// @param membership  a file as /proc/self/cgroup.
/// @param root        where the groups are mounted, of version 2, or in "cpu" of version 1.
SHARDWISE_EXPORT unsigned cores_by_groups(const std::string& membership, const std::string& root);

/// The cores for one of `num_ranks` ranks that share a machine. At least 1.
/// @param own          cores that the rank may use.
/// @param of_launcher  cores that the process may use that started the ranks. They are more where
///   it bound each rank to cores of its own, as srun and mpirun do.
SHARDWISE_EXPORT unsigned cores_of_rank(unsigned own, unsigned of_launcher,
                                        unsigned num_ranks) noexcept;
/// As above, with the cores that this process and its parent may use.
SHARDWISE_EXPORT unsigned cores_of_rank(unsigned num_ranks) noexcept;

}  // namespace shardwise::detail

namespace shardwise {
using detail::cores_of_rank;
using detail::usable_cores;
}  // namespace shardwise
