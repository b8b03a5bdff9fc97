#include "base/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "support/support.h"

namespace shardwise {
namespace {

__extension__ using Wide = __int128;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kLeast = std::numeric_limits<double>::denorm_min();

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum.value();
}

TEST(ExactSumTest, NothingIsLost) {
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({1e300, 1, -1e300}), 1);
  EXPECT_EQ(sum_of({kMax, kLeast, -kMax}), kLeast);
  EXPECT_EQ(sum_of({-kMax, -kLeast, kMax}), -kLeast);
  EXPECT_EQ(sum_of({kMax, kMax, -kMax}), kMax);
  EXPECT_EQ(sum_of({kMax, kMax}), kInfinity);
  EXPECT_EQ(sum_of({-kMax, -kMax}), -kInfinity);
  EXPECT_EQ(sum_of({std::numeric_limits<double>::min(), -kLeast}),
            std::numeric_limits<double>::min() - kLeast);
  EXPECT_EQ(sum_of({0.1, 0.2, 0.3, -0.1, -0.2, -0.3}), 0);
}

TEST(ExactSumTest, RoundsOnceAndToEven) {
  const double one_up = std::nextafter(1.0, 2.0);
  const double half = (one_up - 1) / 2;
  EXPECT_EQ(sum_of({1, half}), 1);
  EXPECT_EQ(sum_of({1, half, kLeast}), one_up);
  EXPECT_EQ(sum_of({one_up, half}), std::nextafter(one_up, 2.0));
  EXPECT_EQ(sum_of({one_up, half, -kLeast}), one_up);
  EXPECT_EQ(sum_of({-1, -half, -kLeast}), -one_up);
}

TEST(ExactSumTest, WhatIsNoNumberStays) {
  EXPECT_EQ(sum_of({1, kInfinity, 2}), kInfinity);
  EXPECT_EQ(sum_of({1, -kInfinity, 2}), -kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(sum_of({1, std::numeric_limits<double>::quiet_NaN()})));
}

TEST(ExactSumTest, IsTheSumOfIntegersRounded) {
  std::mt19937_64 random(test::random_seed());
  for (int round = 0; round < 2000; ++round) {
    // The values are multiples of 2^-40, which a 128-bit integer adds without rounding.
    std::vector<double> values;
    Wide expected = 0;
    for (std::uint64_t i = random() % 50; i > 0; --i) {
      const auto mantissa = static_cast<std::int64_t>(random()) >> (11 + random() % 50);
      const int exponent = static_cast<int>(random() % 60);
      values.push_back(std::ldexp(static_cast<double>(mantissa), exponent - 40));
      expected += static_cast<Wide>(mantissa) << exponent;
    }
    EXPECT_EQ(sum_of(values), std::ldexp(static_cast<double>(expected), -40)) << round;
  }
}

TEST(ExactSumTest, IsTheSameInAnyOrderAndHoweverSplitUp) {
  std::mt19937_64 random(test::random_seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<double> values;
    for (int i = 0; i < 300; ++i) {
      values.push_back(std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())),
                                  static_cast<int>(random() % 1900) - 1100));
    }
    const double expected = sum_of(values);
    std::shuffle(values.begin(), values.end(), random);
    EXPECT_EQ(sum_of(values), expected);
    ExactSum::Words added{};
    for (std::size_t at = 0; at < values.size();) {
      ExactSum part;
      for (std::uint64_t left = random() % 60; left > 0 && at < values.size(); --left) {
        part.add(values[at++]);
      }
      const auto words = part.words();
      for (std::size_t i = 0; i < words.size(); ++i) added[i] += words[i];
    }
    ExactSum all;
    all.set_words(added);
    EXPECT_EQ(all.value(), expected);
  }
}

}  // namespace
}  // namespace shardwise
