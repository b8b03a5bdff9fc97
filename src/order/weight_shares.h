#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace shardwise::detail {

/// The largest number of weights.
inline constexpr std::uint64_t kMaxWeights = (std::uint64_t{1} << 32) - 1;

/// Converts weights to integer shares that add up to `whole`. Share i is about `whole` * weight i /
/// the sum of weights. A weight of 0 has share 0, and any other weight at least 1. The computation
/// uses only integers, so results are the same on every platform.
///
/// Accuracy: if a weight is a fraction p of the sum of n weights, its share differs from p * whole
/// by less than 1 + (1 + n * p) * whole / 2^62. The share of the greatest weight may be smaller,
/// because 1 is taken from it for each positive weight whose share would be 0.
///
/// REQUIRES: whole >= 2^32 * the number of weights.
/// Memory: 8 bytes per weight. Cost: O(weights).
/// Errors: InvalidArgument for a negative or non-finite weight (the text names `unit`, e.g.
/// "sample", and the weight's number), if all weights are 0, and for more than kMaxWeights weights.
/// Source: docs/formats/order.md (Shares of weights, version 1). The version of an order that uses
///   shares covers this algorithm.
std::vector<std::uint64_t> weight_shares(std::span<const double> weights, std::uint64_t whole,
                                         std::string_view unit);

}  // namespace shardwise::detail
