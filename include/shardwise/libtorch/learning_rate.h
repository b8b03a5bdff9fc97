#pragma once

#include <cstdint>

#include "shardwise/base/export.h"

namespace shardwise::libtorch {

/// Returns a learning rate that rises linearly over the first samples of a run, then falls to 0
/// like a cosine. It counts samples, not steps, so that a run may continue with other numbers of
/// ranks and batch sizes:
///
///     const double rate = warm_up_cosine(samples_before, 256, 90 * data.size(), 3e-3);
///     for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
///
/// @param before     samples of all earlier steps, over all ranks.
/// @param step_size  samples of this step, over all ranks.
/// @param total      samples of the run.
/// @param highest    the rate after the warm-up.
/// @param warm_up    the fraction of the run in which the rate rises, in [0, 1).
SHARDWISE_EXPORT double warm_up_cosine(std::uint64_t before, std::uint64_t step_size,
                                       std::uint64_t total, double highest, double warm_up = 0.1);

}  // namespace shardwise::libtorch
