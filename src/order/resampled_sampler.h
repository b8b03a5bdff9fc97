#pragma once

#include <cstdint>

#include "order/slot_samplers.h"
#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

/// Draws samples with replacement, without end; what WebDataset calls resampled.
///
/// NOT exact: an epoch of n draws from n samples has about 63 % of them, some several times (see
/// expected_coverage). It is for runs that count steps and not epochs, for draws by weight, and for
/// comparisons with WebDataset. Anything else is better served by the chunked sampler, which is no
/// slower and as random. An epoch can still be proven to be as ordered.
///
/// Every draw is a function of (seed, epoch, position), with no state, so seek() is O(1), ranks are
/// independent, and a run may resume on any number of ranks like an exact one.
///
/// - By sample: position p draws a sample, uniformly, or by the weights of a metadata column.
/// - By shard: each draw takes a shard, with a probability proportional to its length, and the next
///   L positions read it in shuffled order; L is the mean length, rounded up. With equal shards
///   that is a whole shard; of a longer one it is a part; a shorter one is begun again in another
///   order. So every sample is equally likely, and draws begin at known positions, which is what
///   makes seek() O(1). With `streams` = world_size every rank reads shards of its own, with 1 the
///   ranks share each shard.
///
/// docs/formats/order.md specifies it (Resampled orders, version 1).
///
/// Samples that are left out are found by looking through the epoch: set_epoch() and resume() then
/// cost 20 ns a draw.
class SHARDWISE_EXPORT ResampledSampler final : public SlotSampler {
 public:
  /// `order.kind` is Resampled; `order.epoch_size` is the number of draws of all ranks in an epoch,
  /// by default as many as there are samples. Errors: InvalidArgument if there are none.
  explicit ResampledSampler(const SampleSet& samples, const Order& order = {.kind = Resampled{}},
                            const RankOptions& ranks = {});

  /// The fraction of `num_samples` samples that `num_draws` draws are expected to hit:
  /// 1 - (1 - 1/num_samples)^num_draws; 0 of none.
  [[nodiscard]] static double expected_coverage(std::uint64_t num_draws, std::uint64_t num_samples);
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::ResampledSampler;
}  // namespace shardwise
