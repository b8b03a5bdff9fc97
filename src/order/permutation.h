#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/order/order.h"

namespace shardwise::detail {

/// The part of a permutation that depends on n alone, not on the key. Keep it where many
/// permutations have the same n: it takes two divisions and a square root.
struct SHARDWISE_EXPORT PermutationDomain {
  /// Errors: InvalidArgument if n > kMaxSamples.
  explicit PermutationDomain(std::uint64_t n);

  std::uint64_t size = 0;
  std::uint64_t rows = 1;     ///< a = ceil(sqrt(n))
  std::uint64_t columns = 1;  ///< b = ceil(n / a)
  std::uint64_t columns_reciprocal = 1;
  unsigned rounds = 0;  ///< 0 means: a table
};

/// A keyed bijection on [0, n), for n up to 2^62, that can be evaluated anywhere and both ways.
///
/// Threads: immutable; safe from any thread.
/// Memory: O(1), about 150 bytes, no allocation.
/// Cost: O(1) per value; apply() is several times as fast per value, most with AVX2. Construction
/// is cheap for n > 64 if the domain exists already.
/// Source: docs/formats/order.md (Permutation, version 1). Results are the same on every platform
/// and in every version of the library. Tests hold golden vectors, and kVersion changes with them.
///
/// Why a grid and not powers of two: the domain exceeds n by less than sqrt(n) + 1 instead of up to
/// n, so the time does not depend on n. Rounds add, so subtraction undoes each. All products have
/// factors below 2^32, so that two or more fit a vector.
///
/// Not every permutation can occur: a key has 127 effective bits, and 34! exceeds 2^127. For n >=
/// 34 only some of the n! permutations exist. For such n tests check how often one and two numbers
/// come to each place, and how neighbours are placed.
///
/// Odd and even permutations are equally likely, except where n > 64 and a and b are both odd. Then
/// a = b, n is in (a * (a - 1), a * a], and the rounds are an even permutation of the grid. The
/// permutation of the n numbers then nearly always has the parity of a * b - n, and always if n = a
/// * b.
class SHARDWISE_EXPORT Permutation {
 public:
  static constexpr unsigned kVersion = 1;

  Permutation(std::uint64_t n, Hash128 key) : Permutation(PermutationDomain(n), key) {}
  Permutation(const PermutationDomain& domain, Hash128 key) noexcept;

  std::uint64_t size() const noexcept { return domain_.size; }

  /// The image of `i`. REQUIRES: i < size().
  std::uint64_t operator()(std::uint64_t i) const noexcept;
  /// Checked operator(). Errors: OutOfRange.
  std::uint64_t at(std::uint64_t i) const;
  /// The number whose image is `v`. Errors: OutOfRange.
  std::uint64_t inverse(std::uint64_t v) const;

  /// Replaces each value by its image. Several values are computed at once, which is faster than
  /// one after another.
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
