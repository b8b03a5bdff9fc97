#pragma once

#include <cstdint>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// Returns the samples of every rank in step `step` of `sampler`. Steps are counted from the point
/// where the sampler began: the beginning of the epoch, or the point of resume().
/// Cost: O(samples of the step); for wids, the epoch is replayed for each rank.
/// Errors: OutOfRange if there is no such step.
SHARDWISE_EXPORT std::vector<Sampler::RankStep> explain_step(const Sampler& sampler,
                                                             std::uint64_t step);

/// Returns all deliveries of `sample` on any rank, from the point where `sampler` began to the end
/// of the epoch. Normally there is exactly one. The result is empty if a tail or skip list leaves
/// the sample out, or if it was delivered before that point. There are several only with padding,
/// with replicas, or in a mixture.
/// Cost: O(1). For wids, the epoch is replayed; with balanced bytes, one step of all ranks is
///   computed.
/// Errors: InvalidArgument if the sampler draws with replacement. OutOfRange.
SHARDWISE_EXPORT std::vector<Sampler::SampleTime> when_sample(const Sampler& sampler,
                                                              std::uint64_t sample);

}  // namespace shardwise
