#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace shardwise::detail {

/// The maximum number of weights.
inline constexpr std::uint64_t kMaxWeights = (std::uint64_t{1} << 32) - 1;

/// Turns weights into integer shares that add up to `whole`; share i is about weight i / the sum of
/// weights * whole. A weight of 0 has share 0, any other at least 1. Uses integers only, so results
/// are the same on every platform.
///
/// Accuracy: if a weight is the part p of the sum of n weights, its share differs from p * whole by
/// less than 1 + (1 + n * p) * whole / 2^62. The share of the greatest weight may be smaller,
/// because it gives 1 to each weight that would have share 0.
///
/// REQUIRES: whole >= 2^32 * the number of weights.
/// Memory: 8 bytes per weight. Cost: O(weights).
/// Errors: InvalidArgument for a negative or non-finite weight, naming it with `unit` ("data set",
/// "sample") and its number; if all weights are 0; for more than kMaxWeights.
/// Source: docs/formats/order.md (Shares of weights, version 1); part of every order that uses it.
std::vector<std::uint64_t> weight_shares(std::span<const double> weights, std::uint64_t whole,
                                         std::string_view unit);

}  // namespace shardwise::detail
