#pragma once

#include <cstdint>

namespace shardwise::detail {

__extension__ typedef unsigned __int128 uint128;

inline std::uint64_t multiply_high(std::uint64_t x, std::uint64_t y) noexcept {
  return static_cast<std::uint64_t>((static_cast<uint128>(x) * y) >> 64);
}

constexpr std::uint64_t ceil_div(std::uint64_t x, std::uint64_t y) noexcept {
  return x / y + (x % y != 0 ? 1 : 0);
}

/// A bijection on 64 bits that mixes all bits well (the finaliser of SplitMix64).
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9U;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Another bijection on 64 bits that mixes all bits well (the finaliser of MurmurHash3).
constexpr std::uint64_t mix64_b(std::uint64_t x) noexcept {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdU;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53U;
  return x ^ (x >> 33);
}

struct Division {
  std::uint64_t quotient;
  std::uint64_t remainder;
};

/// Returns floor((2^64 - 1) / divisor), for divide().
constexpr std::uint64_t reciprocal_of(std::uint64_t divisor) noexcept {
  return ~std::uint64_t{0} / divisor;
}

/// Divides by multiplication. 2^64 / divisor exceeds `reciprocal` by at most 1. The estimate x *
/// reciprocal / 2^64 is therefore less than 1 below x / divisor, and its floor at most 1 below the
/// quotient.
inline Division divide(std::uint64_t x, std::uint64_t divisor, std::uint64_t reciprocal) noexcept {
  const std::uint64_t quotient = multiply_high(x, reciprocal);
  const std::uint64_t remainder = x - quotient * divisor;
  if (remainder < divisor) return {quotient, remainder};
  return {quotient + 1, remainder - divisor};
}

}  // namespace shardwise::detail
