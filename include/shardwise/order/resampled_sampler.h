#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// Draws samples with replacement, without end; what WebDataset calls resampled.
///
/// NOT exact: an epoch of n draws from n samples has about 63 % of them, some several times (see
/// expected_coverage). It is for runs that count steps and not epochs, and for comparisons with
/// WebDataset. Anything else is better served by the chunked sampler, which is no slower and as
/// random.
///
/// Every draw is a function of (seed, epoch, position), with no state, so seek() is O(1), ranks are
/// independent, and a run may resume on any number of ranks like an exact one.
///
///   by sample   position p draws a sample uniformly.
///   by shard    each draw takes a shard, with a probability proportional to its length, and the
///   next
///               L positions read it in shuffled order; L is the mean length, rounded up. With
///               equal shards that is a whole shard; of a longer one it is a part; a shorter one is
///               begun again in another order. So every sample is equally likely, and draws begin
///               at known positions, which is what makes seek() O(1). With `streams` = world_size
///               every rank reads shards of its own, with 1 the ranks share each shard.
///
/// Version 1 (with t = derive_key(seed, epoch, KeyPurpose::kResampled, p), and floor arithmetic):
///
///   by sample:  (t.low * n) >> 64
///   by shard:   d = p / L, o = p mod L; with u = derive_key(seed, epoch, kResampledShard, d), the
///   shard
///               is that of sample (u.low * n) >> 64; of its `length` samples the one numbered
///               Permutation(length, derive_key(u.low, u.high, kResampledPass, o / length))(o mod
///               length).
///
/// Threads, memory, cost: as every Sampler.
class SHARDWISE_EXPORT ResampledSampler final : public SlotSampler {
 public:
  /// Draws by sample. `options.epoch_size` is the number of draws of all ranks in an epoch, by
  /// default n. Errors: InvalidArgument if n is 0, or options.resample asks for shards.
  explicit ResampledSampler(SampleCount n, const OrderOptions& options = {});
  /// Draws by sample or by shard, as options.resample says.
  explicit ResampledSampler(ShardOffsets offsets, const OrderOptions& options = {});

  /// Makes epochs of `num_samples` draws, over all ranks together. Begins the epoch anew.
  ResampledSampler& with_epoch(std::uint64_t num_samples);
  /// Makes each epoch `times` as long; the draws just go on. Begins the epoch anew.
  /// Errors (both): InvalidArgument if the epoch would have none, or more than kMaxSamples.
  ResampledSampler& repeat(std::uint64_t times);

  /// The fraction of `num_samples` samples that `num_draws` draws are expected to hit:
  /// 1 - (1 - 1/num_samples)^num_draws.
  static double expected_coverage(std::uint64_t num_draws, std::uint64_t num_samples);

  std::unique_ptr<Sampler> clone() const override;

 private:
  void prepare() override;
  void fill(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const override;
  std::vector<std::uint64_t> slots_of(std::uint64_t sample) const override;
  void expect_epoch(AuditExpectation& expectation) const override;

  void fill_by_shard(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const;

  ShardOffsets offsets_;
  std::uint64_t draw_size_ = 1;  ///< L
};

}  // namespace shardwise
