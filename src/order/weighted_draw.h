#pragma once

#include <cstdint>
#include <vector>

namespace shardwise::detail {

/// Converts a uniform random number to a sample, which is drawn with a probability proportional to
/// its weight.
///
/// Draws are the same on every platform. n samples have shares of n * 2^32 (weight_shares()), which
/// Walker's alias method distributes over a table of n columns. A sample with a weight above 0 is
/// drawn with a probability of at least about 1 / (n * 2^32), a sample with weight 0 never.
/// Probabilities equal the shares to within n / 2^63.
///
/// Why a table of aliases, and not of running sums: both take 8 bytes per sample, but aliases need
/// no search. With many samples, a draw costs one cache miss.
///
/// Threads: immutable; safe from any thread.
/// Memory: 8 bytes per sample, twice that during construction, the weights included.
/// Source: docs/formats/order.md (Draws by weight, version 1).
class WeightedDraw {
 public:
  /// Takes the weights by value, to free them early.
  /// Cost: O(samples).
  /// Errors: InvalidArgument for a weight that is negative or not finite, naming the first such
  /// sample; if all weights are 0; for 2^32 weights or more.
  explicit WeightedDraw(std::vector<double> weights);

  std::uint64_t num_samples() const noexcept { return columns_.size(); }

  /// Returns the sample for the uniform number `uniform`.
  /// Cost: O(1); one cache miss if the table exceeds the CPU's cache.
  std::uint64_t operator()(std::uint64_t uniform) const noexcept;

  /// The 64-bit XXH3 hash of the shares, stored as little-endian 64-bit numbers. Weights with the
  /// same digest give the same draws.
  std::uint64_t digest() const noexcept { return digest_; }

 private:
  struct Column {
    std::uint32_t threshold;
    std::uint32_t alias;
  };

  std::vector<Column> columns_;
  std::uint64_t digest_;
};

}  // namespace shardwise::detail
