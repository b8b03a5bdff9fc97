#include "order/weighted_draw.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "order/arithmetic.h"
#include "order/weight_shares.h"
#include "support/support.h"

namespace shardwise::detail {
namespace {

using Weights = std::vector<double>;
using Shares = std::vector<std::uint64_t>;

constexpr std::uint64_t kColumn = std::uint64_t{1} << 32;

Shares shares_of(const Weights& weights) {
  return weight_shares(weights, weights.size() * kColumn, "sample");
}

std::vector<Weights> many_weights() {
  std::vector<Weights> all{
      {1},
      {0, 1},
      {1, 0, 0, 0},
      {1, 1, 1},
      {1e-12, 1e12},
      {1e12, 1, 0, 1e-12, 1, 7},
      {std::numeric_limits<double>::denorm_min(), 0},
      {std::numeric_limits<double>::max(), std::numeric_limits<double>::max(), 1},
      {-0.0, 5e-324, 1e-310},
  };
  std::mt19937_64 random(3);
  for (const std::size_t n : {5U, 64U, 1000U}) {
    Weights uneven(n);
    for (double& weight : uneven) weight = static_cast<double>(random() % 1000);
    all.push_back(uneven);
    for (double& weight : uneven) weight = std::ldexp(weight, static_cast<int>(random() % 60) - 30);
    all.push_back(uneven);
  }
  return all;
}

TEST(WeightSharesTest, AddUpAndForgetNobody) {
  for (const Weights& weights : many_weights()) {
    for (const std::uint64_t whole : {weights.size() * kColumn, std::uint64_t{1} << 62}) {
      const Shares shares = weight_shares(weights, whole, "sample");
      EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::uint64_t{0}), whole);
      long double sum = 0;
      for (const double weight : weights) sum += weight;
      const auto greatest = std::max_element(shares.begin(), shares.end());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        ASSERT_EQ(shares[i] > 0, weights[i] > 0) << i;
        if (shares.begin() + static_cast<std::ptrdiff_t>(i) == greatest) continue;
        const long double part = weights[i] / sum;
        const long double exact = part * static_cast<long double>(whole);
        const long double n = static_cast<long double>(weights.size());
        const long double bound =
            1.01L + (1 + n * part) * static_cast<long double>(whole) / std::ldexp(1.0L, 62);
        EXPECT_LT(std::abs(static_cast<long double>(shares[i]) - exact), bound) << i;
      }
    }
  }
}

TEST(WeightSharesTest, OnlyRatiosCount) {
  const Weights weights{5, 1, 2.5, 0, 1e-9};
  for (const double factor : {2.0, 0.25, 0x1p-900, 0x1p900}) {
    Weights scaled = weights;
    for (double& weight : scaled) weight *= factor;
    EXPECT_EQ(shares_of(scaled), shares_of(weights)) << factor;
  }
}

// docs/formats/order.md, Shares of weights, version 1.
TEST(WeightSharesTest, GoldenSharesNeverChange) {
  EXPECT_EQ(weight_shares(Weights{1, 1, 1}, std::uint64_t{1} << 40, "sample"),
            (Shares{366503875925, 366503875925, 366503875926}));
  EXPECT_EQ(weight_shares(Weights{0.1, 0, 1e-300, 123.456}, std::uint64_t{1} << 62, "sample"),
            (Shares{3732466265035601, 0, 1, 4607953552162352302}));
}

/// Returns how many of the 2^64 uniform numbers give each sample. It searches the one place in each
/// column where the sample changes.
std::vector<uint128> numbers_of(const WeightedDraw& draw) {
  const std::uint64_t n = draw.num_samples();
  std::vector<uint128> counts(n);
  const auto column_begin = [n](std::uint64_t j) {
    return ((static_cast<uint128>(j) << 64) + n - 1) / n;
  };
  for (std::uint64_t j = 0; j < n; ++j) {
    const uint128 begin = column_begin(j);
    const uint128 end = column_begin(j + 1);
    const std::uint64_t lowest = draw(static_cast<std::uint64_t>(begin));
    const std::uint64_t highest = draw(static_cast<std::uint64_t>(end - 1));
    uint128 low = begin;  // the largest number so far that still gives the column's first sample
    uint128 high = end;
    while (highest != lowest && high - low > 1) {
      const uint128 middle = low + (high - low) / 2;
      (draw(static_cast<std::uint64_t>(middle)) == lowest ? low : high) = middle;
    }
    counts[lowest] += high - begin;
    counts[highest] += end - high;
  }
  return counts;
}

TEST(WeightedDrawTest, ProbabilitiesAreTheShares) {
  for (const Weights& weights : many_weights()) {
    const Shares shares = shares_of(weights);
    const std::vector<uint128> counts = numbers_of(WeightedDraw(weights));
    const std::uint64_t n = weights.size();
    for (std::size_t i = 0; i < n; ++i) {
      // The count may be wrong by one for each column in which the sample has a part.
      const uint128 exact = (static_cast<uint128>(shares[i]) << 32) / n;
      const uint128 off = counts[i] > exact ? counts[i] - exact : exact - counts[i];
      ASSERT_LE(off, n + 1) << i << " of " << n;
      ASSERT_EQ(counts[i] == 0, weights[i] == 0) << i;
    }
  }
}

// docs/formats/order.md, Draws by weight, version 1.
TEST(WeightedDrawTest, GoldenDrawsNeverChange) {
  const WeightedDraw draw(Weights{5, 1, 0, 2.5, 1e-12, 40, 3});
  std::vector<std::uint64_t> found;
  for (std::uint64_t i = 0; i < 16; ++i) found.push_back(draw(mix64(i + 1)));
  EXPECT_EQ(found, (std::vector<std::uint64_t>{5, 6, 5, 5, 5, 5, 0, 5, 5, 0, 5, 5, 6, 1, 0, 5}));
  EXPECT_EQ(draw(0), 0U);
  EXPECT_EQ(draw(~std::uint64_t{0}), 5U);
  EXPECT_EQ(draw.digest(), 16150376177398921611U);
}

TEST(WeightedDrawTest, DigestTellsWeightsApart) {
  const std::uint64_t digest = WeightedDraw(Weights{1, 2, 3}).digest();
  EXPECT_EQ(WeightedDraw(Weights{2, 4, 6}).digest(), digest);
  EXPECT_NE(WeightedDraw(Weights{1, 2, 3.0000001}).digest(), digest);
  EXPECT_NE(WeightedDraw(Weights{1, 2, 3, 0}).digest(), digest);
  EXPECT_NE(WeightedDraw(Weights{2, 1, 3}).digest(), digest);
}

}  // namespace
}  // namespace shardwise::detail
