#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/order/order.h"

namespace shardwise::detail {

/// The part of a permutation that depends on n, but not on the key. Reuse it if many permutations
/// have the same n: to compute it takes two divisions and a square root.
struct SHARDWISE_EXPORT PermutationDomain {
  /// Errors: InvalidArgument if n > kMaxSamples.
  explicit PermutationDomain(std::uint64_t n);

  std::uint64_t size = 0;
  std::uint64_t rows = 1;     ///< a = ceil(sqrt(n))
  std::uint64_t columns = 1;  ///< b = ceil(n / a)
  std::uint64_t columns_reciprocal = 1;
  unsigned rounds = 0;  ///< 0 means: a table
};

/// A keyed bijection on [0, n), for n up to 2^62. It can be evaluated for any single number, in
/// both directions.
///
/// Threads: immutable; safe from any thread.
/// Memory: O(1), about 150 bytes, no allocation.
/// Cost: O(1) per value. apply() is several times as fast per value, and fastest with AVX2.
/// Construction is cheap for n > 64 if the domain exists already.
/// Source: docs/formats/order.md (Permutation, version 1). Results are the same on every platform,
/// and in every version of the library with the same kVersion. Tests contain golden vectors.
///
/// Why a grid: its size exceeds n by less than sqrt(n) + 1, so the time does not depend on n. The
/// next power of two may exceed n by almost n. Rounds are additions, so subtraction reverses them.
/// All products have factors below 2^32, so that a SIMD vector has room for two or more.
///
/// Not every permutation can occur: a key has 127 effective bits, and 34! exceeds 2^127. For n >=
/// 34 only some of the n! permutations occur. For such n, tests check how often single numbers and
/// pairs of numbers are mapped to each place, and where neighbours are mapped.
///
/// Odd and even permutations are equally likely, except if n > 64 and the numbers of rows a and
/// columns b are both odd. In that case a = b, n is in (a * (a - 1), a * a], and the rounds are an
/// even permutation of the grid. The permutation of the n numbers then nearly always has the parity
/// of a * b - n, and always if n = a * b.
class SHARDWISE_EXPORT Permutation {
 public:
  static constexpr unsigned kVersion = 1;

  Permutation(std::uint64_t n, Hash128 key) : Permutation(PermutationDomain(n), key) {}
  Permutation(const PermutationDomain& domain, Hash128 key) noexcept;

  std::uint64_t size() const noexcept { return domain_.size; }

  /// The image of `i`. REQUIRES: i < size().
  std::uint64_t operator()(std::uint64_t i) const noexcept;
  /// The number whose image is `v`. Errors: OutOfRange.
  std::uint64_t inverse(std::uint64_t v) const;

  /// Replaces each value by its image. Computes several values at once, which is faster than single
  /// calls.
  /// REQUIRES: every value < size().
  void apply(std::span<std::uint64_t> values) const noexcept;

 private:
  static constexpr std::uint64_t kTableSize = 64;

  void fill_table() noexcept;

  PermutationDomain domain_;
  std::uint64_t k0_;
  std::uint64_t k1_;
  std::array<std::uint8_t, kTableSize> table_;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::Permutation;
using detail::PermutationDomain;
}  // namespace shardwise
