#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "order/epoch_order.h"
#include "shardwise/order/sampler.h"
#include "support/support.h"

namespace shardwise::test {

using Samples = std::vector<std::uint64_t>;

/// All that is left of `sampler`.
inline Samples drain(Sampler& sampler) {
  Samples samples;
  for (const std::uint64_t sample : sampler) samples.push_back(sample);
  return samples;
}

/// What `sampler` delivers from where it began to the end of its epoch; moves nothing.
inline Samples delivered(const Sampler& sampler) {
  const std::unique_ptr<Sampler> copy = sampler.clone();
  copy->seek(0);
  return drain(*copy);
}

/// What all ranks deliver together, rank by rank; of replicas the first one only.
inline Samples of_all_ranks(const Sampler& sampler) {
  Samples all;
  for (std::uint64_t rank = 0; rank < sampler.world_size(); rank += sampler.replicas()) {
    const Samples part = delivered(*sampler.for_rank(rank));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/// The sampler at the beginning of `epoch`.
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

/// True if `samples` holds each of [0, n) once.
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

/// Shard lengths that add up to n, some of them 0, from a fixed generator.
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
