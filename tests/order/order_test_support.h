#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <variant>
#include <vector>

#include "order/epoch_order.h"
#include "shardwise/order/sampler.h"
#include "support/support.h"

namespace shardwise::test {

using Samples = std::vector<std::uint64_t>;

/// A sampler that can be copied, of any order but wids.
struct ResampledSampler : detail::SlotSampler {
  explicit ResampledSampler(const SampleSet& samples, const Order& order = {.kind = Resampled{}},
                            const RankOptions& ranks = {})
      : SlotSampler(samples, order, ranks) {}
};
struct SequentialSampler : detail::SlotSampler {
  explicit SequentialSampler(const SampleSet& samples, const RankOptions& ranks = {})
      : SlotSampler(samples, {.kind = Sequential{}}, ranks) {}
};

/// A sample of a mixture: the number of its data set, and its number in that data set.
struct MixtureSample {
  std::uint64_t dataset = 0;
  std::uint64_t sample = 0;

  friend bool operator==(const MixtureSample&, const MixtureSample&) = default;
};
struct MixtureSampler : detail::SlotSampler {
  MixtureSampler(const SampleSet& samples, const Order& order, const RankOptions& ranks = {})
      : SlotSampler(samples, order, ranks) {}

  [[nodiscard]] MixtureSample split(std::uint64_t number) const {
    std::uint64_t dataset = 0;
    for (const Mixture::Part& part : std::get<Mixture>(order().kind).parts) {
      if (number < part.num_samples) break;
      number -= part.num_samples;
      ++dataset;
    }
    return {dataset, number};
  }
  std::optional<MixtureSample> next_split() {
    const std::optional<std::uint64_t> number = next();
    return number ? std::optional(split(*number)) : std::nullopt;
  }
};

/// Returns the remaining samples of `sampler`.
inline Samples drain(Sampler& sampler) {
  Samples samples;
  for (const std::uint64_t sample : sampler) samples.push_back(sample);
  return samples;
}

/// Returns the samples that `sampler` delivers from the point where it began to the end of its
/// epoch. Does not move the sampler.
inline Samples delivered(const Sampler& sampler) {
  const std::unique_ptr<Sampler> copy = sampler.clone();
  copy->seek(0);
  return drain(*copy);
}

/// Returns the samples that all ranks deliver, rank by rank. Includes only the first of several
/// replicas.
inline Samples of_all_ranks(const Sampler& sampler) {
  Samples all;
  for (std::uint64_t rank = 0; rank < sampler.world_size(); rank += sampler.replicas()) {
    const Samples part = delivered(*sampler.for_rank(rank));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/// Returns a copy of the sampler at the beginning of `epoch`.
template <class AnySampler>
AnySampler at_epoch(const AnySampler& sampler, std::uint64_t epoch) {
  AnySampler moved(sampler);
  moved.set_epoch(epoch);
  return moved;
}

inline Samples sorted(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}

inline Samples first_numbers(std::uint64_t n) {
  Samples samples(n);
  std::iota(samples.begin(), samples.end(), std::uint64_t{0});
  return samples;
}

/// True if `samples` contains each number of [0, n) exactly once.
inline bool is_each_once(const Samples& samples, std::uint64_t n) {
  if (samples.size() != n) return false;
  std::vector<bool> seen(n);
  for (const std::uint64_t sample : samples) {
    if (sample >= n || seen[sample]) return false;
    seen[sample] = true;
  }
  return true;
}

inline ShardOffsets offsets_of(const std::vector<std::uint64_t>& lengths) {
  return shard_offsets_from_lengths(lengths);
}

/// Returns random shard lengths that add up to n, some of them 0.
inline std::vector<std::uint64_t> some_lengths(std::uint64_t n, std::uint64_t max_length,
                                               std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> lengths;
  while (n > 0) {
    const std::uint64_t length = std::min(n, random() % (max_length + 1));
    lengths.push_back(length);
    n -= length;
  }
  return lengths;
}

}  // namespace shardwise::test
