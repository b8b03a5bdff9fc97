#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/order/order.h"

namespace shardwise::detail {

/// The part of a permutation that depends on n alone, not on the key. Worth keeping where many
/// permutations have the same n: making one costs two divisions and a square root.
struct SHARDWISE_EXPORT PermutationDomain {
  /// Errors: InvalidArgument if n > kMaxSamples.
  explicit PermutationDomain(std::uint64_t n);

  std::uint64_t size = 0;
  std::uint64_t rows = 1;     ///< a = ceil(sqrt(n))
  std::uint64_t columns = 1;  ///< b = ceil(n / a)
  std::uint64_t columns_reciprocal = 1;
  unsigned rounds = 0;  ///< 0: a table
};

/// A keyed bijection on [0, n), for n up to 2^62, that can be evaluated anywhere and both ways.
///
/// Immutable; safe from any thread. O(1) memory (about 150 bytes, no allocation). The same on every
/// platform and in every version of the library: docs/formats/order.md specifies it (Permutation,
/// version 1), tests hold golden vectors, and kVersion would change with them.
///
/// Cost: about 5 ns a value in apply() on a processor with AVX2, else 12 ns; 35 ns for one alone
/// (half as much again for n < 512). Making one: a few ns for n > 64 if its domain is at hand, else
/// up to 200 ns.
///
/// Why a grid and not powers of two: the domain exceeds n by less than sqrt(n) + 1 instead of up to
/// n, so the time does not depend on n. Rounds add, so each is undone by subtraction. All products
/// have factors below 2^32, so that two or more fit a vector.
///
/// Not every permutation can occur: a key has 127 bits that count, and 34! is more than 2^127. So
/// from n = 34 on only some of the n! permutations exist. Tests check there how often one and two
/// numbers come to each place, and how neighbours lie. Odd and even permutations are
/// equally likely, except where n > 64 and a and b are both odd (then a = b: n in (a * (a - 1),
/// a * a]). There the rounds are an even permutation of the grid, and that of the n numbers nearly
/// always has the parity of a * b - n; always where n = a * b.
class SHARDWISE_EXPORT Permutation {
 public:
  static constexpr unsigned kVersion = 1;

  Permutation(std::uint64_t n, Hash128 key) : Permutation(PermutationDomain(n), key) {}
  Permutation(const PermutationDomain& domain, Hash128 key) noexcept;

  std::uint64_t size() const noexcept { return domain_.size; }

  /// The image of `i`. REQUIRES: i < size().
  std::uint64_t operator()(std::uint64_t i) const noexcept;
  /// As operator(), but checked. Errors: OutOfRange.
  std::uint64_t at(std::uint64_t i) const;
  /// The number whose image is `v`. Errors: OutOfRange.
  std::uint64_t inverse(std::uint64_t v) const;

  /// Replaces each value by its image. Many are computed at once, so this is about six times as
  /// fast as one after another. REQUIRES: every value < size().
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
