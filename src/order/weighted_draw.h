#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shardwise::order_detail {

/// Draws a sample with a probability in proportion to its weight, from a uniform number.
///
/// Version 1, the same on every platform. n samples have the shares weight_shares(weights, n *
/// 2^32): a weight above 0 is drawn with a probability of at least about 1 / (n * 2^32), a weight
/// of 0 never. They are laid into n columns of 2^32, each column j holding up to threshold(j) part
/// of the share of sample j itself and above it part of that of alias(j) (Walker's table):
///
///     light samples have shares below 2^32, heavy ones the others. One heavy sample h after the
///     other, in the order of their numbers, has `left` of its share still to place:
///
///         left > 2^32    the next light sample l, in the order of numbers, keeps its share as its
///                        threshold, and h is its alias; left -= 2^32 - share l
///         else           left is the threshold of h, and the next heavy sample is its alias and
///                        the next h, with left = its share - (2^32 - that threshold)
///
///     The last heavy sample ends with left = 2^32, and is its own alias.
///
/// A uniform number u of 64 bits means column j = floor(u * n / 2^64), and there the height y =
/// floor(u * n mod 2^64 / 2^32): the sample is j if y < threshold(j), else alias(j).
///
/// So of the 2^64 numbers, each part of a column gets what it has in it to within 1: probabilities
/// are the shares to within n / 2^63.
///
/// Why a table of aliases and not of running sums: each of the two takes 8 bytes a sample, but there
/// is nothing to search, so that a draw from many samples costs one miss of the cache.
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

}  // namespace shardwise::order_detail
