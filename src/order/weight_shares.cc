#include "order/weight_shares.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "base/assert.h"
#include "order/arithmetic.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

namespace {

constexpr int kMassBits = 62;

/// Returns floor(weight * 2^scale), computed from mantissa and exponent, so that no platform rounds
/// differently.
/// REQUIRES: weight >= 0, and the result < 2^62.
std::uint64_t scaled_floor(double weight, int scale) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(std::abs(weight));  // -0.0 is 0
  const auto biased = static_cast<int>(bits >> 52);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const std::uint64_t mantissa = biased == 0 ? fraction : fraction | (std::uint64_t{1} << 52);
  const int shift = std::max(biased, 1) - 1075 + scale;
  SHARDWISE_ASSERT(weight >= 0);
  SHARDWISE_ASSERT(shift < 0 || static_cast<int>(std::bit_width(mantissa)) + shift <= kMassBits);
  if (shift >= 0) return mantissa << shift;
  return shift > -64 ? mantissa >> -shift : 0;
}

void check_weights(std::span<const double> weights, std::string_view unit) {
  if (weights.size() > kMaxWeights) {
    throw InvalidArgument("there are too many weights", {}, "give at most 2^32 - 1 weights");
  }
  const auto bad = std::find_if(weights.begin(), weights.end(), [](double weight) {
    return !(weight >= 0 && std::isfinite(weight));
  });
  if (bad == weights.end()) return;
  throw InvalidArgument("a weight is " + std::to_string(*bad),
                        std::string(unit) + " " + std::to_string(bad - weights.begin()),
                        "give finite weights of at least 0");
}

}  // namespace

std::vector<std::uint64_t> weight_shares(std::span<const double> weights, std::uint64_t whole,
                                         std::string_view unit) {
  check_weights(weights, unit);
  SHARDWISE_ASSERT(whole >> 32 >= weights.size());
  const auto greatest = std::max_element(weights.begin(), weights.end());
  if (greatest == weights.end() || *greatest == 0) {
    throw InvalidArgument("no weight is above 0", {}, "give at least one positive weight");
  }
  int exponent = 0;
  static_cast<void>(std::frexp(*greatest, &exponent));
  const int scale = kMassBits - exponent;

  uint128 sum = 0;
  for (const double weight : weights) sum += scaled_floor(weight, scale);
  int drop = 0;
  while ((sum >> drop) >> (kMassBits + 1) != 0) ++drop;
  std::uint64_t total = 0;
  for (const double weight : weights) total += scaled_floor(weight, scale) >> drop;

  // Computes shares as differences of rounded running sums, so that the rounding loss of one share
  // is added to the next.
  std::vector<std::uint64_t> shares(weights.size());
  std::uint64_t mass = 0;
  std::uint64_t border = 0;
  std::uint64_t lifted = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    mass += scaled_floor(weights[i], scale) >> drop;
    const auto next = static_cast<std::uint64_t>(static_cast<uint128>(mass) * whole / total);
    shares[i] = next - border;
    border = next;
    if (shares[i] == 0 && weights[i] > 0) {
      shares[i] = 1;
      ++lifted;
    }
  }
  // The greatest share stays positive: it is at least 2^32, and `lifted` is less than the number of
  // weights.
  *std::max_element(shares.begin(), shares.end()) -= lifted;
  return shares;
}

}  // namespace shardwise::detail
