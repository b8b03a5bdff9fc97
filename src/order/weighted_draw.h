#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shardwise::detail {

/// Draws a sample with a probability in proportion to its weight, from a uniform number.
///
/// Draws are the same on every platform: n samples have shares of n * 2^32 (weight_shares()), which
/// Walker's table lays into n columns; docs/formats/order.md specifies it (Draws by weight, version
/// 1). A weight above 0 is drawn with a probability of at least about 1 / (n * 2^32), a weight of 0
/// never; probabilities are the shares to within n / 2^63.
///
/// Why a table of aliases and not of running sums: each of the two takes 8 bytes a sample, but
/// there is nothing to search, so that a draw from many samples costs one miss of the cache.
///
/// Threads: immutable; safe from any thread.
/// Memory: 8 bytes a sample, twice that while it is made.
class WeightedDraw {
 public:
  static constexpr unsigned kVersion = 1;

  /// Cost: about 50 ns a sample.
  /// Errors: InvalidArgument: a weight that is negative or not finite, naming the first such
  /// sample; all weights 0; 2^32 weights or more.
  explicit WeightedDraw(std::span<const double> weights);

  std::uint64_t num_samples() const noexcept { return columns_.size(); }

  /// The sample that `uniform` means.
  /// Cost: about 4 ns while the table fits a cache; beyond, one miss of it, 50 ns for 10^7 samples.
  std::uint64_t operator()(std::uint64_t uniform) const noexcept;

  /// XXH3, 64 bits, of the shares as little-endian numbers of 64 bits: weights of the same digest
  /// give the same draws.
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
