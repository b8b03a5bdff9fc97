#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "order/slot_samplers.h"
#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

/// A sample of a mixture.
struct MixtureSample {
  std::uint64_t dataset = 0;
  std::uint64_t sample = 0;  ///< in that data set

  friend bool operator==(const MixtureSample&, const MixtureSample&) = default;
};

/// Several data sets mixed by weight, each of them in exact epochs of its own: the draws from data
/// set d, over all ranks, are its epoch 0, then its epoch 1, and so on, each sample once in each,
/// however long the mixture's own epochs are. Within a block of 256 positions draws come in
/// permuted order, so where an epoch of a data set ends, the next may begin up to 255 positions
/// before; at the borders of blocks no sample is more than one delivery ahead of another of its
/// data set. The mixture's epochs have `epoch_size` samples, by default as many as all data sets
/// together have; where an epoch stops in a data set, the next one goes on.
///
/// The numbers it gives are those of the data sets one after another: sample s of data set d is
/// first_sample(d) + s, as in a data set made of all of them; split() takes them apart.
///
/// Everything is a function of (seed, position), so it seeks, resumes and changes its number of
/// ranks as the exact samplers do, with the same token. `streams` is 1 and `tail` exact, since
/// anything else would break the data sets' epochs. An epoch is proven to be as ordered.
/// docs/formats/order.md specifies it (Mixtures, version 2).
///
/// Memory: 6 KB, and two orders of each data set. Cost: below 100 ns a sample on any number of
/// ranks.
class SHARDWISE_EXPORT MixtureSampler final : public SlotSampler {
 public:
  /// `order.kind` is a Mixture whose parts have together as many samples as `samples`.
  /// Errors: InvalidArgument: no data set, a weight that is negative or not finite, all weights 0,
  /// a data set without samples but with a weight, options that do not apply.
  MixtureSampler(const SampleSet& samples, const Order& order, const RankOptions& ranks = {});
  std::unique_ptr<Sampler> clone() const override;

  std::size_t num_datasets() const noexcept;
  /// Where the numbers of `dataset` begin. REQUIRES: dataset <= num_datasets().
  std::uint64_t first_sample(std::size_t dataset) const;
  /// Errors: OutOfRange.
  MixtureSample split(std::uint64_t number) const;
  /// The next sample of this rank, taken apart.
  std::optional<MixtureSample> next_split();
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::MixtureSample;
using detail::MixtureSampler;
}  // namespace shardwise
