#pragma once

#ifdef SHARDWISE_HAVE_GLOO

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/rank_environment.h"

namespace shardwise::libtorch::detail {

/// Meets the other ranks in `store`: each claims its rank, tells its address, and waits for all.
/// Errors: kDistributed: two processes of one rank; ranks that did not come by the deadline, with
///   their numbers; ranks that disagree on the world size, or cannot reach each other.
void rendezvous(c10d::Store& store, const RankEnvironment& environment,
                const std::string& own_address, std::chrono::steady_clock::time_point deadline);

}  // namespace shardwise::libtorch::detail

#endif
