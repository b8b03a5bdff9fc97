#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loader/epoch_plan.h"
#include "shardwise/base/export.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/resume.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

/// The batch of a rank in a step of batches by group or length, before bad samples are left out.
struct RankBatch {
  Sampler::RankStep step;
  std::string group;  ///< key of the group; empty without groups
};

/// Returns what each rank has in a step of the plan. REQUIRES: plan.window() > 0.
/// Errors: OutOfRange if there is no such step.
[[nodiscard]] SHARDWISE_EXPORT std::vector<RankBatch> explain_batches(const EpochPlan& plan,
                                                                      std::uint64_t step);
/// Returns the same for a run of `world_size` ranks with these options, from a token on.
/// Errors: also those of Loader's constructor and of EpochPlan::resume().
[[nodiscard]] SHARDWISE_EXPORT std::vector<RankBatch> explain_batches(
    const MixedDataset& data, const Loader::Options& options, std::uint64_t world_size,
    const ResumeToken& token, std::uint64_t step);
/// Returns all deliveries of a sample in the plan. REQUIRES: plan.window() > 0.
/// Errors: OutOfRange if there is no such sample.
/// Cost: makes all batches from the plan's beginning to its end.
[[nodiscard]] SHARDWISE_EXPORT std::vector<Sampler::SampleTime> when_in_batches(
    const EpochPlan& plan, std::uint64_t sample);

}  // namespace shardwise::detail
