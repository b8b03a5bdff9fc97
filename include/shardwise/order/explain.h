#pragma once

#include <cstdint>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// What one rank had in one step.
struct RankStep {
  std::uint64_t rank = 0;
  std::vector<std::uint64_t> samples;  ///< in order; fewer than a batch, or none, at an epoch's end

  friend bool operator==(const RankStep&, const RankStep&) = default;
};

/// What every rank has in global step `step` of `sampler`'s epoch, with `batch_size` samples a
/// rank. A run that resumed counts its steps from global slot `first_slot`. Cost: about 1 us a rank
/// and 20 ns a sample; for wids a replay of the epoch on each rank. Errors: InvalidArgument if
/// batch_size is 0; OutOfRange if the epoch has no such step.
SHARDWISE_EXPORT std::vector<RankStep> explain_step(const Sampler& sampler, std::uint64_t step,
                                                    std::uint64_t batch_size,
                                                    std::uint64_t first_slot = 0);

/// Where a sample comes.
struct SampleTime {
  std::uint64_t rank = 0;
  std::uint64_t step = 0;
  std::uint64_t place = 0;  ///< in the batch, from 0
  std::uint64_t slot = 0;   ///< global

  friend bool operator==(const SampleTime&, const SampleTime&) = default;
};

/// When `sample` comes in `sampler`'s epoch, on any rank: once; not at all if a tail, a skip list,
/// or what came before `first_slot` leaves it out; more often only where padded, or in a mixture.
/// Cost: as Sampler::deliveries.
/// Errors: InvalidArgument if batch_size is 0, or the sampler draws with replacement; OutOfRange.
SHARDWISE_EXPORT std::vector<SampleTime> when_sample(const Sampler& sampler, std::uint64_t sample,
                                                     std::uint64_t batch_size,
                                                     std::uint64_t first_slot = 0);

}  // namespace shardwise
