#include "order/permutation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "order/key.h"
#include "order/order_test_support.h"
#include "order/permutation_grid.h"
#include "shardwise/order/sample_key.h"
#include "support/says.h"

namespace shardwise {
namespace {

using test::Samples;

Permutation make(std::uint64_t n, std::uint64_t seed) {
  return {n, derive_key(seed, 0, KeyPurpose::kSamples)};
}

Samples images(const Permutation& permutation) {
  Samples values = test::first_numbers(permutation.size());
  permutation.apply(values);
  return values;
}

/// Returns the quantile of the chi-square distribution at z standard deviations above the mean, for
/// many degrees of freedom (Wilson and Hilferty).
double chi_square_limit(double degrees, double z) {
  const double c = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1.0 - c + z * std::sqrt(c), 3);
}

TEST(KeyTest, DependsOnEveryPartAndNeverOnSums) {
  const Hash128 key = derive_key(0, 1, KeyPurpose::kChunks, 0);
  EXPECT_NE(key, derive_key(1, 0, KeyPurpose::kChunks, 0));
  EXPECT_NE(key, derive_key(0, 1, KeyPurpose::kSamples, 0));
  EXPECT_NE(key, derive_key(0, 1, KeyPurpose::kChunks, 1));
  EXPECT_EQ(to_string(derive_key(17, 3, KeyPurpose::kChunks, 5)),
            "4a8d4061892ece9e6b01d98f00235409");
}

TEST(KeyTest, TheKeyOfASampleIsAFunctionOfAllThatNamesIt) {
  const Hash128 key = sample_key(17, 3, 5);
  EXPECT_EQ(key, derive_key(17, 3, KeyPurpose::kSample, 5));
  const Hash128 placed = sample_key(17, 3, 5, 9);
  EXPECT_EQ(placed, derive_key(key.low, key.high, KeyPurpose::kSample, 9));
  std::set<std::string> keys;
  for (const Hash128& each :
       {key, placed, sample_key(18, 3, 5), sample_key(17, 4, 5), sample_key(17, 3, 6),
        sample_key(5, 3, 17), sample_key(3, 17, 5), sample_key(18, 3, 5, 9),
        sample_key(17, 4, 5, 9), sample_key(17, 3, 6, 9), sample_key(17, 3, 5, 10),
        sample_key(17, 3, 5, 0), sample_key(17, 3, 9, 5)}) {
    keys.insert(to_string(each));
  }
  EXPECT_EQ(keys.size(), 13U);
  EXPECT_EQ(to_string(key), "05af3ce5366d883f3f0a4a72cc83d505");
  EXPECT_EQ(to_string(placed), "c3d46be25cb78bffdf5bab71ceacc447");
}

TEST(PermutationTest, IsABijectionWithItsInverseForEverySmallSize) {
  for (std::uint64_t n = 0; n <= 300; ++n) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Permutation permutation = make(n, seed);
      const Samples values = images(permutation);
      ASSERT_TRUE(test::is_each_once(values, n)) << "n " << n << " seed " << seed;
      for (std::uint64_t i = 0; i < n; ++i) {
        ASSERT_EQ(permutation(i), values[i]) << "n " << n;
        ASSERT_EQ(permutation.inverse(values[i]), i) << "n " << n;
      }
    }
  }
}

TEST(PermutationTest, IsABijectionForLargerSizes) {
  for (const std::uint64_t n :
       {511U, 512U, 1000U, 1023U, 1024U, 1025U, 4095U, 10007U, 65536U, 1000003U}) {
    ASSERT_TRUE(test::is_each_once(images(make(n, 5)), n)) << n;
  }
}

TEST(PermutationTest, InvertsForHugeSizes) {
  for (const std::uint64_t n : {std::uint64_t{1'000'000'000'000}, (std::uint64_t{1} << 40) + 1,
                                (std::uint64_t{1} << 61) - 1, kMaxSamples - 1, kMaxSamples}) {
    const Permutation permutation = make(n, 7);
    Samples values;
    std::mt19937_64 random(n);
    for (int i = 0; i < 1000; ++i) values.push_back(random() % n);
    values.insert(values.end(), {0, 1, n / 2, n - 2, n - 1});
    Samples mapped = values;
    permutation.apply(mapped);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_LT(mapped[i], n);
      ASSERT_EQ(permutation(values[i]), mapped[i]);
      ASSERT_EQ(permutation.inverse(mapped[i]), values[i]);
    }
  }
}

TEST(PermutationTest, EveryBulkPathGivesWhatOneByOneGives) {
  using detail::BulkPath;
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t n = 65; n <= 600; ++n) sizes.push_back(n);
  // Numbers near squares, near powers of two, and any numbers.
  for (unsigned bits = 10; bits <= 62; ++bits) {
    const std::uint64_t power = std::uint64_t{1} << bits;
    const auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(power))) - 3;
    sizes.insert(sizes.end(), {power - 1, power, root * root - 1, root * root, root * root + 1,
                               root * root + root, root * root + root + 1, random() % power + 65});
    if (bits < 62) sizes.push_back(power + 1);
  }
  for (const std::uint64_t n : sizes) {
    const PermutationDomain domain(n);
    const Hash128 key{random(), random()};
    const Permutation permutation(domain, key);
    const detail::Grid grid{n,       domain.rows, domain.columns, domain.columns_reciprocal,
                            key.low, key.high | 1};
    Samples values{0, n - 1, n / 2};
    // Numbers at which the estimated quotient may be wrong by one.
    for (std::uint64_t row = 0; row < 40; ++row) {
      const std::uint64_t corner = random() % domain.rows * domain.columns;
      if (corner > 0) values.push_back(corner - 1);
      values.push_back(std::min(corner, n - 1));
    }
    while (values.size() < 150) values.push_back(random() % n);
    Samples expected = values;
    for (std::uint64_t& value : expected) value = permutation(value);
    for (const BulkPath path : {BulkPath::kPortable, BulkPath::kSse2, BulkPath::kAvx2}) {
      if (!detail::is_supported(path)) continue;
      for (const std::size_t length :
           {0U, 1U, 3U, 4U, 5U, 15U, 16U, 17U, 31U, 32U, 33U, 47U, 48U, 49U, 63U, 64U, 65U, 150U}) {
        Samples bulk(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(length));
        detail::apply_grid(path, grid, domain.rounds, bulk);
        ASSERT_TRUE(std::equal(bulk.begin(), bulk.end(), expected.begin()))
            << "n " << n << " path " << static_cast<int>(path) << " length " << length;
      }
    }
    for (std::size_t first = 0; first < 20; ++first) {  // spans that are not aligned
      Samples bulk(values.begin() + static_cast<std::ptrdiff_t>(first), values.end());
      permutation.apply(bulk);
      ASSERT_TRUE(std::equal(bulk.begin(), bulk.end(),
                             expected.begin() + static_cast<std::ptrdiff_t>(first)))
          << "n " << n << " first " << first;
    }
  }
}

// docs/formats/order.md, Permutation, version 1.
TEST(PermutationTest, IsWhatItsSpecificationSays) {
  const auto first = [](std::uint64_t n) {
    const Permutation permutation(n, Hash128{0x0123456789abcdef, 0xfedcba9876543210});
    Samples values;
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(n, 8); ++i)
      values.push_back(permutation(i));
    return values;
  };
  EXPECT_EQ(first(1), (Samples{0}));
  EXPECT_EQ(first(5), (Samples{0, 1, 2, 3, 4}));
  EXPECT_EQ(first(8), (Samples{2, 1, 4, 0, 3, 5, 7, 6}));
  EXPECT_EQ(first(64), (Samples{15, 57, 25, 35, 44, 63, 27, 53}));
  EXPECT_EQ(first(65), (Samples{14, 27, 30, 26, 43, 56, 22, 33}));
  EXPECT_EQ(first(100), (Samples{5, 74, 41, 83, 6, 26, 8, 54}));
  EXPECT_EQ(first(511), (Samples{205, 4, 51, 13, 357, 115, 241, 263}));
  EXPECT_EQ(first(512), (Samples{284, 243, 293, 295, 267, 156, 458, 450}));
  EXPECT_EQ(first(1000), (Samples{17, 735, 98, 539, 634, 609, 990, 292}));
  EXPECT_EQ(first(1000003),
            (Samples{199276, 388088, 869255, 925412, 53953, 204652, 961515, 719909}));
  EXPECT_EQ(first(1000000000000U),
            (Samples{348949140766, 863420091077, 509917532216, 262071947676, 153770261700,
                     348284582190, 689652420100, 413379149192}));
  EXPECT_EQ(first(4611686018427387904U),
            (Samples{3114415033415278111, 1858056636298237433, 2578301686601221269,
                     1363944331937127269, 1146580075441764044, 3026758616639191026,
                     3938367097861805168, 3091799237539594694}));
}

TEST(PermutationTest, RefusesWhatIsOutOfRange) {
  const Permutation permutation = make(10, 0);
  EXPECT_ERROR(test::Says("[0, 10)"), permutation.inverse(11));
  EXPECT_CODE(kInvalidArgument, make(kMaxSamples + 1, 0));
}

// Statistical tests. Their seeds are fixed, so they pass always or never. The limits are 4.5
// standard deviations (p about 3e-6) for each of some 60 sums.

TEST(PermutationStatisticsTest, TinyPermutationsAreAllEquallyLikely) {
  for (std::uint64_t n = 2; n <= 6; ++n) {
    std::size_t factorial = 1;
    for (std::size_t i = 2; i <= n; ++i) factorial *= i;
    const std::size_t trials = 400 * factorial;
    std::map<Samples, std::size_t> counts;
    for (std::size_t seed = 0; seed < trials; ++seed) ++counts[images(make(n, seed))];
    ASSERT_EQ(counts.size(), factorial) << n;
    double chi_square = 0;
    for (const auto& [permutation, count] : counts) {
      const double difference = static_cast<double>(count) - 400;
      chi_square += difference * difference / 400;
    }
    EXPECT_LT(chi_square, chi_square_limit(static_cast<double>(factorial - 1), 4.5)) << n;
  }
}

TEST(PermutationStatisticsTest, EveryPositionTakesEveryValueEquallyOften) {
  for (const std::uint64_t n : {3U, 7U, 16U, 33U, 64U, 65U, 100U, 128U, 257U}) {
    const std::size_t trials = 200 * n;
    std::vector<std::uint32_t> counts(n * n);
    for (std::size_t seed = 0; seed < trials; ++seed) {
      const Samples values = images(make(n, seed));
      for (std::size_t i = 0; i < n; ++i) ++counts[i * n + values[i]];
    }
    double chi_square = 0;
    for (const std::uint32_t count : counts) {
      const double difference = static_cast<double>(count) - 200;
      chi_square += difference * difference / 200;
    }
    const double degrees = static_cast<double>((n - 1) * (n - 1));
    // The sums of rows and columns are fixed, which scales the statistic by n / (n - 1).
    EXPECT_LT(chi_square * static_cast<double>(n - 1) / static_cast<double>(n),
              chi_square_limit(degrees, 4.5))
        << n;
    EXPECT_GT(chi_square * static_cast<double>(n - 1) / static_cast<double>(n),
              chi_square_limit(degrees, -4.5))
        << n;
  }
}

TEST(PermutationStatisticsTest, EveryPairOfPositionsTakesEveryPairOfValuesEquallyOften) {
  // The grid that mixes worst: the smallest one, with 9 rows and 8 columns.
  const std::uint64_t n = 70;
  const std::size_t pairs = n * (n - 1);
  const std::size_t trials = 60 * pairs;
  // Pairs of numbers: neighbours in a row, neighbours in a column, and distant numbers.
  for (const auto& [x, y] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 1}, {0, 8}, {3, 69}}) {
    std::vector<std::uint32_t> counts(n * n);
    for (std::size_t seed = 0; seed < trials; ++seed) {
      const Permutation permutation = make(n, seed);
      ++counts[permutation(x) * n + permutation(y)];
    }
    double chi_square = 0;
    for (std::size_t v = 0; v < n; ++v) {
      for (std::size_t w = 0; w < n; ++w) {
        if (v == w) continue;
        const double difference = static_cast<double>(counts[v * n + w]) - 60;
        chi_square += difference * difference / 60;
      }
    }
    EXPECT_LT(chi_square, chi_square_limit(static_cast<double>(pairs - 1), 4.5)) << x << " " << y;
  }
}

TEST(PermutationStatisticsTest, ConsecutiveValuesAreNotCorrelated) {
  for (const std::uint64_t n : {200U, 1000U, 5000U, 100000U}) {
    const std::size_t trials = 2'000'000 / n;
    for (const std::size_t lag : {1U, 2U, 7U, 32U}) {
      double sum = 0;
      std::size_t terms = 0;
      const double mean = static_cast<double>(n - 1) / 2;
      const double variance = (static_cast<double>(n) * static_cast<double>(n) - 1) / 12;
      for (std::size_t seed = 0; seed < trials; ++seed) {
        const Samples values = images(make(n, seed));
        for (std::size_t i = 0; i + lag < n; ++i) {
          sum += (static_cast<double>(values[i]) - mean) *
                 (static_cast<double>(values[i + lag]) - mean);
          ++terms;
        }
      }
      // Two values drawn without replacement have the correlation -1 / (n - 1).
      const double correlation = sum / static_cast<double>(terms) / variance;
      const double expected = -1.0 / static_cast<double>(n - 1);
      EXPECT_NEAR(correlation, expected, 4.5 / std::sqrt(static_cast<double>(terms)))
          << n << " " << lag;
    }
  }
}

TEST(PermutationStatisticsTest, TheFirstElementIsUniform) {
  for (const std::uint64_t n : {65U, 1000U, 1024U, 3000U}) {
    std::vector<std::uint32_t> counts(n);
    for (std::size_t seed = 0; seed < 100 * n; ++seed) ++counts[make(n, seed)(0)];
    double chi_square = 0;
    for (const std::uint32_t count : counts) {
      const double difference = static_cast<double>(count) - 100;
      chi_square += difference * difference / 100;
    }
    EXPECT_LT(chi_square, chi_square_limit(static_cast<double>(n - 1), 4.5)) << n;
  }
}

/// Counts the distances |p(i + 1) - p(i)| in 20 classes, which are about equally likely in a random
/// permutation.
std::vector<double> neighbour_distances(std::uint64_t n, std::size_t trials,
                                        const std::function<Samples(std::size_t)>& values_of) {
  std::vector<double> counts(20);
  for (std::size_t seed = 0; seed < trials; ++seed) {
    const Samples values = values_of(seed);
    for (std::size_t i = 0; i + 1 < n; ++i) {
      const auto distance = static_cast<double>(
          values[i] > values[i + 1] ? values[i] - values[i + 1] : values[i + 1] - values[i]);
      const double rest = 1 - distance / static_cast<double>(n);
      ++counts[static_cast<std::size_t>((1 - rest * rest) * 20 * 0.999999)];
    }
  }
  return counts;
}

TEST(PermutationStatisticsTest, NeighboursAreAsFarApartAsUnderFisherYates) {
  for (const std::uint64_t n : {100U, 1000U, 20000U}) {
    const std::size_t trials = 2'000'000 / n;
    const std::vector<double> ours =
        neighbour_distances(n, trials, [n](std::size_t seed) { return images(make(n, seed)); });
    std::mt19937_64 random(1);
    const std::vector<double> theirs = neighbour_distances(n, trials, [&](std::size_t) {
      Samples values = test::first_numbers(n);
      std::shuffle(values.begin(), values.end(), random);
      return values;
    });
    double chi_square = 0;  // compares two samples of the same size
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double difference = ours[i] - theirs[i];
      chi_square += difference * difference / (ours[i] + theirs[i]);
    }
    EXPECT_LT(chi_square, chi_square_limit(19, 4.5)) << n;
  }
}

bool is_odd(const Samples& values) {
  std::vector<bool> seen(values.size());
  std::size_t cycles = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (seen[i]) continue;
    ++cycles;
    for (std::size_t j = i; !seen[j]; j = values[j]) seen[j] = true;
  }
  return (values.size() - cycles) % 2 == 1;
}

TEST(PermutationStatisticsTest, GridsOfTwoOddSidesPreferOneParityAndNoOtherDoes) {
  for (std::uint64_t n = 2; n <= 700; ++n) {
    const PermutationDomain domain(n);
    const std::uint64_t cells = domain.rows * domain.columns;
    int odd = 0;
    const int trials = 60;
    for (std::uint64_t seed = 0; seed < trials; ++seed)
      odd += is_odd(images(make(n, seed))) ? 1 : 0;
    if (n <= 64 || cells % 2 == 0) {
      EXPECT_NEAR(odd, trials / 2, 4.5 * std::sqrt(trials) / 2) << n;
      continue;
    }
    EXPECT_EQ(domain.rows, domain.columns) << n;
    const int others = (cells - n) % 2 == 0 ? odd : trials - odd;
    EXPECT_LE(others, cells == n ? 0 : trials / 4) << n;
  }
}

}  // namespace
}  // namespace shardwise
