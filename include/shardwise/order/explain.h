#pragma once

#include <cstdint>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// The samples of every rank in step `step` of `sampler`, of its batch_size() samples a rank. Steps
/// are counted from where the sampler began: the epoch's beginning, or where it resumed.
/// Cost: about 1 us a rank and 20 ns a sample; for wids a replay of the epoch on each rank.
/// Errors: OutOfRange if there is no such step.
SHARDWISE_EXPORT std::vector<Sampler::RankStep> explain_step(const Sampler& sampler,
                                                             std::uint64_t step);

/// All deliveries of `sample`, on any rank, between the point where `sampler` began and the end of
/// the epoch. There is one; none if a tail or a skip list leaves the sample out, or if it was
/// delivered before that point; and several only with padding, with replicas, or in a mixture.
/// Cost: O(1), for wids a replay of the epoch, with balanced bytes a step of all ranks.
/// Errors: InvalidArgument if the sampler draws with replacement; OutOfRange.
SHARDWISE_EXPORT std::vector<Sampler::SampleTime> when_sample(const Sampler& sampler,
                                                              std::uint64_t sample);

}  // namespace shardwise
