#pragma once

#include <cstdint>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// The samples of one rank in one step.
struct RankStep {
  std::uint64_t rank = 0;
  std::vector<std::uint64_t> samples;  ///< in order; fewer than a batch, or none, at an epoch's end

  friend bool operator==(const RankStep&, const RankStep&) = default;
};

/// The samples of every rank in step `step` of `sampler`, of its batch_size() samples a rank. Steps
/// are counted from where the sampler began: the epoch's beginning, or where it resumed.
/// Cost: about 1 us a rank and 20 ns a sample; for wids a replay of the epoch on each rank.
/// Errors: OutOfRange if there is no such step.
SHARDWISE_EXPORT std::vector<RankStep> explain_step(const Sampler& sampler, std::uint64_t step);

/// Where a sample comes.
struct SampleTime {
  std::uint64_t rank = 0;
  std::uint64_t step = 0;      ///< from where the sampler began
  std::uint64_t place = 0;     ///< in the batch, from 0
  std::uint64_t position = 0;  ///< in the epoch, over all ranks

  friend bool operator==(const SampleTime&, const SampleTime&) = default;
};

/// When `sample` comes from where `sampler` began to the end of the epoch, on any rank: once; not
/// at all if a tail, a skip list, or what came before leaves it out; more often only where padded,
/// on replicas, or in a mixture.
/// Cost: O(1), for wids a replay of the epoch, with balanced bytes a step of all ranks.
/// Errors: InvalidArgument if the sampler draws with replacement; OutOfRange.
SHARDWISE_EXPORT std::vector<SampleTime> when_sample(const Sampler& sampler, std::uint64_t sample);

}  // namespace shardwise
