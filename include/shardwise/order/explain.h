#pragma once

#include <cstdint>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// Returns the samples of every rank in step `step` of `sampler`. A step has batch_size() samples
/// per rank. Steps are counted from where the sampler began: the beginning of the epoch, or the
/// point of resume().
/// Cost: O(samples of the step); for wids a replay of the epoch on each rank.
/// Errors: OutOfRange if there is no such step.
SHARDWISE_EXPORT std::vector<Sampler::RankStep> explain_step(const Sampler& sampler,
                                                             std::uint64_t step);

/// Returns all deliveries of `sample` on any rank, from where `sampler` began to the end of the
/// epoch. Normally it is one. It is empty if a tail or skip list leaves the sample out, or if it
/// was delivered before. There are several only with padding, with replicas, or in a mixture.
/// Cost: O(1); for wids a replay of the epoch; with balanced bytes one step of all ranks.
/// Errors: InvalidArgument if the sampler draws with replacement. OutOfRange.
SHARDWISE_EXPORT std::vector<Sampler::SampleTime> when_sample(const Sampler& sampler,
                                                              std::uint64_t sample);

}  // namespace shardwise
