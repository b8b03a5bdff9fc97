#pragma once

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The cores that this process may use: those of its affinity, as taskset, a container or a
/// launcher set it. At least 1.
SHARDWISE_EXPORT unsigned usable_cores() noexcept;

/// The cores for one of `num_ranks` ranks that share a machine. At least 1.
/// @param own          cores that the rank may use.
/// @param of_launcher  cores that the process may use that started the ranks. They are more where
///   it bound each rank to cores of its own, as srun and mpirun do.
SHARDWISE_EXPORT unsigned cores_of_rank(unsigned own, unsigned of_launcher,
                                        unsigned num_ranks) noexcept;
/// The same of this process, by its affinity and its parent's.
SHARDWISE_EXPORT unsigned cores_of_rank(unsigned num_ranks) noexcept;

}  // namespace shardwise::detail

namespace shardwise {
using detail::cores_of_rank;
using detail::usable_cores;
}  // namespace shardwise
