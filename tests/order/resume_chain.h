#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error_types.h"
#include "order/order_test_support.h"
#include "support/chain.h"

// Random samples, and what all chains of resumes do with a sampler.
namespace shardwise::test {

/// Random samples and a random order of them.
struct Setup {
  SampleSet samples{0};
  Order order;
};

inline std::uint64_t random_size(Dice& random) {
  if (random.percent(1)) return random.between(400, 6000);
  if (random.percent(40)) return random.below(401);
  return random.below(41);
}

inline Samples random_lengths(Dice& random, std::uint64_t n) {
  Samples lengths = some_lengths(n, random.between(1, n / 3 + 2), random.number());
  for (std::uint64_t i = random.below(3); i > 0; --i) lengths.push_back(0);
  return lengths;
}

inline SampleSet random_samples(Dice& random, std::uint64_t n) {
  const std::uint64_t key = random.number();
  const auto bytes = [key](std::uint64_t sample) {
    const std::uint64_t mixed = (sample + 1) * 0x9e3779b97f4a7c15U ^ key;
    return mixed % 7 == 0 ? 0 : (mixed >> 20) % 1000;
  };
  const auto weights = [n, key](const std::string&) {
    std::vector<double> column(n);
    for (std::uint64_t i = 0; i < n; ++i) column[i] = static_cast<double>((key >> i % 32) % 5);
    column[0] = 1;
    return column;
  };
  return SampleSet(n)
      .with_bytes(bytes)
      .with_column(weights)
      .with_fingerprint({.high = random.number(), .low = random.number()})
      .with_shards(offsets_of(random_lengths(random, n)));
}

inline std::uint64_t random_batch(Dice& random) {
  return random.percent(10) ? random.between(9, 100) : random.between(1, 8);
}

/// Returns the next `count` samples, by one of several functions of the sampler.
inline Samples take(Sampler& sampler, std::uint64_t count, Dice& random) {
  Samples samples;
  if (count == 0) return samples;
  const std::uint64_t way = random.below(3);
  if (way == 0 || sampler.position() == sampler.size()) {
    samples.resize(count);
    samples.resize(sampler.next_batch(samples));
  } else if (way == 1) {
    while (samples.size() < count) {
      const std::optional<std::uint64_t> next = sampler.next();
      if (!next) break;
      samples.push_back(*next);
    }
  } else {
    for (const std::uint64_t sample : sampler) {
      samples.push_back(sample);
      if (samples.size() == count) break;
    }
  }
  return samples;
}

/// Calls functions that must not change the sampler's results.
inline void disturb(std::unique_ptr<Sampler>& sampler, const SampleSet& samples, Dice& random) {
  const std::uint64_t position = sampler->position();
  switch (random.below(5)) {
    case 0:
      sampler = sampler->clone();
      break;
    case 1:
      sampler = sampler->for_rank(sampler->rank());
      sampler->seek(position);
      break;
    case 2:
      if (random.percent(50)) sampler->seek(random.below(sampler->size() + 1));
      if (random.percent(50)) take(*sampler, random.below(5), random);
      sampler->seek(position);
      break;
    case 3:
      take(*sampler->for_rank(random.below(sampler->world_size())), 5, random);
      if (sampler->size() > 0) sampler->at(random.below(sampler->size()));
      break;
    default: {
      ResumeToken token = sampler->token_after(0);
      token.position = std::uint64_t{1} << 62;
      must_throw<OutOfRange>([&] { sampler->resume(token); }, "resume() behind the epoch");
      token.fingerprint.low = ~samples.fingerprint().low;
      must_throw<Mismatch>([&] { sampler->resume(token); }, "resume() on other data");
    }
  }
  must_equal(sampler->position(), position, "what changes nothing moved the sampler");
}

}  // namespace shardwise::test
