#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace shardwise::detail {

/// The most weights that make shares.
inline constexpr std::uint64_t kMaxWeights = (std::uint64_t{1} << 32) - 1;

/// Turns weights into integer shares that add up to `whole`, share i being about weight i / the sum
/// of weights * whole. A weight of 0 has share 0, any other at least 1. Integers all along, so the
/// same on every platform.
///
/// Part of every order that uses it: docs/formats/order.md (Shares of weights, version 1).
///
/// So if a weight is the part p of the sum of n weights, its share differs from p * whole by less
/// than 1 + (1 + n * p) * whole / 2^62. The share of the greatest weight may also be smaller, by
/// the ones that were taken from it.
///
/// REQUIRES: whole >= 2^32 * the number of weights.
/// Memory: 8 bytes a weight. Cost: about 30 ns a weight.
/// Errors: InvalidArgument: a weight that is negative or not finite, naming it with `unit` ("data
///   set", "sample") and its number; all weights 0; more than kMaxWeights.
std::vector<std::uint64_t> weight_shares(std::span<const double> weights, std::uint64_t whole,
                                         std::string_view unit);

}  // namespace shardwise::detail
