#include "order/epoch_order.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "order/arithmetic.h"
#include "order/key.h"
#include "order/order_test_support.h"
#include "order/permutation.h"
#include "support/says.h"

namespace shardwise {
namespace {

using test::Samples;

Samples all_of(const EpochOrder& order) {
  Samples samples(order.size());
  order.fill(0, 1, samples);
  return samples;
}

/// Implements the definition in the header naively: concatenates the chunks in a vector and
/// permutes each group.
Samples naive(const std::vector<std::uint64_t>& lengths, const EpochOrder::Shuffle& shuffle) {
  Samples begin;
  std::uint64_t n = 0;
  for (const std::uint64_t length : lengths) {
    begin.push_back(n);
    n += length;
  }
  const Permutation chunks(lengths.size(),
                           derive_key(shuffle.seed, shuffle.epoch, KeyPurpose::kChunks));
  Samples order;
  for (std::uint64_t place = 0; place < lengths.size(); place += shuffle.window) {
    Samples group;
    for (std::uint64_t p = place;
         p < std::min<std::uint64_t>(place + shuffle.window, lengths.size()); ++p) {
      const std::uint64_t chunk = chunks(p);
      for (std::uint64_t i = 0; i < lengths[chunk]; ++i) group.push_back(begin[chunk] + i);
    }
    const Permutation inside(
        group.size(),
        derive_key(shuffle.seed, shuffle.epoch, KeyPurpose::kSamples, place / shuffle.window));
    for (std::uint64_t i = 0; i < group.size(); ++i) order.push_back(group[inside(i)]);
  }
  if (shuffle.phase && n > 0) {
    const Hash128 key = derive_key(shuffle.seed, shuffle.epoch, KeyPurpose::kPhase);
    const std::uint64_t h = detail::multiply_high(key.low, lengths.front());
    for (std::uint64_t& sample : order) sample = (sample + h) % n;
  }
  return order;
}

std::vector<std::uint64_t> chunk_lengths(std::uint64_t n, std::uint64_t chunk_size) {
  std::vector<std::uint64_t> lengths(n / chunk_size, chunk_size);
  if (n % chunk_size != 0) lengths.push_back(n % chunk_size);
  return lengths;
}

/// Tests map() with sparse positions, descending positions, and random positions with repetitions.
void expect_maps(const EpochOrder& order, const Samples& expected) {
  if (order.size() == 0) return order.map({});
  std::mt19937_64 random(order.size());
  Samples thin;
  Samples wild;
  for (std::uint64_t p = 0; p < order.size(); p += 1 + random() % 5) thin.push_back(p);
  while (wild.size() < std::min<std::uint64_t>(order.size() + 5, 2000))
    wild.push_back(random() % order.size());
  for (const Samples& positions : {thin, Samples(thin.rbegin(), thin.rend()), wild}) {
    Samples mapped = positions;
    order.map(mapped);
    for (std::size_t i = 0; i < mapped.size(); ++i) ASSERT_EQ(mapped[i], expected[positions[i]]);
  }
}

/// Tests that each listed group contains the samples that the order delivers in that group.
void expect_groups(const EpochOrder& order, const Samples& expected) {
  auto position = expected.begin();
  std::vector<EpochOrder::SampleRange> ranges;
  for (std::uint64_t group = 0; group < order.num_groups(); ++group) {
    order.list_group(group, ranges);
    std::multiset<std::uint64_t> listed;
    for (const auto& [first, last] : ranges) {
      for (std::uint64_t sample = first; sample < last; ++sample) listed.insert(sample);
    }
    const auto end = position + static_cast<std::ptrdiff_t>(listed.size());
    ASSERT_EQ(listed, std::multiset<std::uint64_t>(position, end));
    position = end;
  }
  ASSERT_TRUE(order.is_sequential() || position == expected.end());
}

void expect_consistent(const EpochOrder& order, const Samples& expected) {
  ASSERT_EQ(all_of(order), expected);
  ASSERT_TRUE(test::is_each_once(expected, order.size()));
  for (std::uint64_t p = 0; p < order.size(); ++p) {
    ASSERT_EQ(order[p], expected[p]);
    ASSERT_EQ(order.position_of(expected[p]), p);
  }
  for (const std::uint64_t stride : {2U, 3U, 7U, 50U}) {
    for (std::uint64_t first = 0; first < std::min<std::uint64_t>(order.size(), 3); ++first) {
      Samples out((order.size() - first - 1) / stride + 1);
      order.fill(first, stride, out);
      for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], expected[first + i * stride]);
    }
  }
  ASSERT_NO_FATAL_FAILURE(expect_maps(order, expected));
  ASSERT_NO_FATAL_FAILURE(expect_groups(order, expected));
}

TEST(EpochOrderTest, SequentialIsTheIdentity) {
  expect_consistent(EpochOrder::sequential(20), test::first_numbers(20));
  EXPECT_EQ(EpochOrder::sequential(0).size(), 0U);
}

TEST(EpochOrderTest, ChunkedIsItsDefinitionForAllSmallCases) {
  for (std::uint64_t n = 0; n <= 60; ++n) {
    for (const std::uint64_t chunk_size : {1U, 2U, 3U, 7U, 13U, 64U}) {
      for (const std::uint64_t window : {1U, 2U, 3U, 5U, 100U}) {
        for (const bool phase : {false, true}) {
          const EpochOrder::Shuffle shuffle{n, chunk_size, window, phase};
          const Samples expected = naive(chunk_lengths(n, chunk_size), shuffle);
          ASSERT_NO_FATAL_FAILURE(
              expect_consistent(EpochOrder::chunked(n, chunk_size, shuffle), expected))
              << "n " << n << " chunk_size " << chunk_size << " window " << window << " phase "
              << phase;
        }
      }
    }
  }
}

TEST(EpochOrderTest, ChunkedIsItsDefinitionForRandomCases) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 200; ++trial) {
    const std::uint64_t n = random() % 20000;
    const std::uint64_t chunk_size = 1 + random() % 900;
    const std::uint64_t window = 1 + random() % 12;
    const EpochOrder::Shuffle shuffle{random(), random() % 100, window, trial % 2 == 1};
    const EpochOrder order = EpochOrder::chunked(n, chunk_size, shuffle);
    const Samples expected = naive(chunk_lengths(n, chunk_size), shuffle);
    ASSERT_EQ(all_of(order), expected) << "trial " << trial;
    ASSERT_NO_FATAL_FAILURE(expect_maps(order, expected)) << "trial " << trial;
    for (int i = 0; i < 20 && n > 0; ++i) {
      const std::uint64_t p = random() % n;
      ASSERT_EQ(order.at(p), expected[p]) << "trial " << trial;
      ASSERT_EQ(order.position_of(expected[p]), p) << "trial " << trial;
    }
  }
}

TEST(EpochOrderTest, ShardedIsItsDefinitionWithEmptyShardsToo) {
  for (std::uint64_t n = 0; n <= 80; ++n) {
    for (const std::uint64_t window : {1U, 2U, 4U, 100U}) {
      const std::vector<std::uint64_t> lengths = test::some_lengths(n, 1 + n % 17, n);
      const EpochOrder::Shuffle shuffle{n, 1, window};
      ASSERT_NO_FATAL_FAILURE(expect_consistent(
          EpochOrder::sharded(test::offsets_of(lengths), shuffle), naive(lengths, shuffle)))
          << "n " << n << " window " << window;
    }
  }
}

// docs/formats/order.md, A pass, version 1.
TEST(EpochOrderTest, GoldenOrdersNeverChange) {
  EXPECT_EQ(
      all_of(EpochOrder::chunked(23, 5, {17, 3, 1})),
      (Samples{17, 19, 15, 18, 16, 9, 5, 6, 7, 8, 21, 20, 22, 14, 10, 12, 11, 13, 4, 0, 2, 1, 3}));
  EXPECT_EQ(
      all_of(EpochOrder::chunked(23, 5, {17, 3, 2})),
      (Samples{9, 15, 6, 17, 8, 5, 19, 16, 7, 18, 22, 13, 14, 21, 20, 10, 11, 12, 1, 3, 2, 0, 4}));
  EXPECT_EQ(all_of(EpochOrder::sharded(test::offsets_of({3, 0, 7, 2, 5}), {17, 3, 1})),
            (Samples{11, 10, 13, 15, 14, 12, 16, 9, 3, 6, 4, 7, 5, 8, 1, 0, 2}));
  const EpochOrder large = EpochOrder::chunked(1'000'000'000'000, 1000, {17, 3, 8});
  EXPECT_EQ((Samples{large[0], large[1], large[999'999'999'999]}),
            (Samples{314050442634, 64774110093, 572311914165}));
  EXPECT_EQ(large.position_of(large[123'456'789'012]), 123'456'789'012U);
}

// docs/formats/order.md, A pass: Phase.
TEST(EpochOrderTest, GoldenOrdersWithPhaseNeverChange) {
  EXPECT_EQ(
      all_of(EpochOrder::chunked(23, 5, {17, 3, 2, true})),
      (Samples{12, 18, 9, 20, 11, 8, 22, 19, 10, 21, 2, 16, 17, 1, 0, 13, 14, 15, 4, 6, 5, 3, 7}));
  EXPECT_EQ(
      all_of(EpochOrder::chunked(23, 5, {17, 4, 1, true})),
      (Samples{7, 6, 9, 8, 10, 21, 22, 0, 4, 1, 3, 2, 5, 15, 12, 13, 11, 14, 19, 17, 18, 16, 20}));
  EXPECT_EQ(all_of(EpochOrder::chunked(8, 100, {17, 3, 1, true})),
            (Samples{5, 4, 6, 2, 1, 7, 3, 0}));
  const EpochOrder large = EpochOrder::chunked(1'000'000'000'000, 1000, {17, 3, 8, true});
  EXPECT_EQ((Samples{large[0], large[1], large[999'999'999'999]}),
            (Samples{314050443400, 64774110859, 572311914931}));
  EXPECT_EQ(large.position_of(large[123'456'789'012]), 123'456'789'012U);
}

TEST(EpochOrderTest, PhaseMovesTheBordersOfChunksByEveryAmountEquallyOften) {
  std::vector<int> counts(20);
  for (std::uint64_t epoch = 0; epoch < 20'000; ++epoch) {
    std::vector<EpochOrder::SampleRange> ranges;
    EpochOrder::chunked(100, 20, {9, epoch, 1, true}).list_group(0, ranges);
    ++counts[ranges.front().first % 20];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 4.5 * std::sqrt(1000));
}

TEST(EpochOrderTest, WorksAtTheLargestSizes) {
  for (const std::uint64_t n : {kMaxSamples, kMaxSamples - 1, std::uint64_t{1'000'000'000'007}}) {
    for (const std::uint64_t chunk_size :
         {std::uint64_t{1}, std::uint64_t{1000}, std::uint64_t{1'500'000'001}, n / 3, n,
          ~std::uint64_t{0}}) {
      for (const std::uint64_t window : {std::uint64_t{1}, std::uint64_t{8}, ~std::uint64_t{0}}) {
        for (const bool phase : {false, true}) {
          const EpochOrder order = EpochOrder::chunked(n, chunk_size, {1, 2, window, phase});
          for (const std::uint64_t p : {std::uint64_t{0}, n / 2, n - 1}) {
            ASSERT_LT(order[p], n);
            ASSERT_EQ(order.position_of(order[p]), p) << n << " " << chunk_size << " " << window;
          }
          // Many positions at once use another code path than a single position.
          Samples many(40);
          order.fill(n / 2, n / 90, many);
          Samples near(40);
          order.fill(n / 3, 7, near);
          for (std::size_t i = 0; i < many.size(); ++i) {
            ASSERT_EQ(many[i], order.at(n / 2 + i * (n / 90))) << n << " " << chunk_size;
            ASSERT_EQ(near[i], order.at(n / 3 + i * 7)) << n << " " << chunk_size;
          }
        }
      }
    }
  }
}

TEST(EpochOrderTest, EveryPositionTakesEverySampleEquallyOftenOverEpochs) {
  const std::uint64_t n = 60;
  const std::size_t epochs = 30000;
  std::vector<double> counts(n * n);
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    const Samples samples = all_of(EpochOrder::chunked(n, 10, {9, epoch, 2}));
    for (std::size_t p = 0; p < n; ++p) ++counts[p * n + samples[p]];
  }
  const double expected = static_cast<double>(epochs) / static_cast<double>(n);
  double chi_square = 0;
  for (const double count : counts)
    chi_square += (count - expected) * (count - expected) / expected;
  const double degrees = static_cast<double>((n - 1) * (n - 1));
  // Samples of a chunk move together. This does not change the mean of the sum, but increases its
  // variance. The limit is therefore 12 standard deviations of independent draws.
  EXPECT_NEAR(chi_square, degrees, 12 * std::sqrt(2 * degrees));
}

TEST(EpochOrderTest, RefusesWhatCannotBe) {
  EXPECT_ERROR(test::Says("chunk_size is 0"), EpochOrder::chunked(10, 0, {}));
  EXPECT_ERROR(test::Says("window is 0"), EpochOrder::chunked(10, 1, {0, 0, 0}));
  EXPECT_CODE(kInvalidArgument, EpochOrder::chunked(kMaxSamples + 1, 1, {}));
  EXPECT_ERROR(test::Says("shard offsets", "not valid"),
               EpochOrder::sharded(std::make_shared<const Samples>(Samples{0, 5, 3}), {}));
  EXPECT_CODE(kInvalidArgument, EpochOrder::sharded(nullptr, {}));
  EXPECT_ERROR(test::Says("chunks of equal size", "leave out the phase"),
               EpochOrder::sharded(test::offsets_of({3, 4}), {0, 0, 1, true}));
  const EpochOrder order = EpochOrder::chunked(10, 3, {});
  EXPECT_ERROR(test::Says("[0, 10)"), order.at(10));
  EXPECT_ERROR(test::Says("no sample 12"), order.position_of(12));
}

}  // namespace
}  // namespace shardwise
