#pragma once

#include <chrono>
#include <string>

#include "shardwise/base/export.h"
#include "shardwise/libtorch/process_group.h"
#include "shardwise/loader/loader.h"

namespace shardwise::libtorch {

/// Returns a table of what each rank did in an epoch, naming the slowest rank. This is the rank for
/// which the others wait when gradients are reduced, because the sum of its data wait and its
/// compute time is largest. Every rank must call it at the end of an epoch, and gets the same text.
///
///      rank      wait    compute   exchange    loading   MB read  bad  host
///         0    0.02 s     9.81 s     2.11 s    17.90 s     412.0    0  node1
///         1    2.30 s     9.57 s     0.07 s    18.85 s     409.6    3  node2
///     slowest: rank 1 (host node2): 2.30 s of waiting for data and 9.57 s of compute
///
/// `wait` is the loop's time in next(). `exchange` is its time in GradientAverager::average(),
/// including the wait for slower ranks. `compute` is the rest of the loop's time. `loading` is the
/// work of the loader's threads, concurrent with the loop.
/// @param now, before  Loader::stats() at the end and at the beginning of the epoch.
/// @param exchanged    the growth of GradientAverager::time_spent() during the epoch.
/// Cost: one small all-reduce.
/// Errors: kDistributed.
SHARDWISE_EXPORT std::string epoch_report(const Loader::Stats& now, const Loader::Stats& before,
                                          std::chrono::nanoseconds exchanged,
                                          const ProcessGroup& group);

}  // namespace shardwise::libtorch
