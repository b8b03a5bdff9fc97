#include "order/deal.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "support/support.h"

namespace shardwise::detail {
namespace {

using Sizes = std::vector<std::uint64_t>;
using Ranks = std::vector<std::uint32_t>;

Ranks deal(std::uint64_t world, std::uint64_t step, const Sizes& sizes) {
  Ranks ranks(sizes.size());
  Dealer(world).deal(step, sizes, ranks);
  return ranks;
}

/// Implements docs/formats/order.md, Balanced bytes, literally.
Ranks naive(std::uint64_t world, std::uint64_t step, const Sizes& sizes) {
  const std::uint64_t n = sizes.size();
  if (n == 0) return {};
  const std::uint64_t num_ranks = std::min(world, n);
  const auto width =
      static_cast<unsigned>(std::bit_width(*std::max_element(sizes.begin(), sizes.end())));
  Sizes scaled = sizes;
  std::uint64_t total = 0;
  for (std::uint64_t& size : scaled) total += (size >>= (width > 32 ? width - 32 : 0));

  // Class -> slot; slots of one class remain ascending.
  std::multimap<std::uint64_t, std::size_t, std::greater<>> order;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t x = scaled[i] + 1;
    const auto e = static_cast<unsigned>(std::bit_width(x)) - 1;
    order.emplace(16 * e + (16 * (x - (std::uint64_t{1} << e)) >> e), i);
  }
  Sizes load(num_ranks);
  Sizes left(num_ranks);
  for (std::uint64_t r = 0; r < num_ranks; ++r) left[r] = n / world + (r < n % world ? 1 : 0);
  Ranks ranks(n);
  auto next = order.begin();
  for (std::uint64_t wave = 0; next != order.end(); ++wave) {
    std::vector<std::uint64_t> wanting;
    for (std::uint64_t i = 0; i < num_ranks; ++i) {
      const std::uint64_t rank = (i + step % num_ranks) % num_ranks;
      if (left[rank] > 0) wanting.push_back(rank);
    }
    if (wave % 2 == 1) std::reverse(wanting.begin(), wanting.end());
    std::uint64_t least = ~std::uint64_t{0};
    for (const std::uint64_t rank : wanting) least = std::min(least, load[rank]);
    const std::uint64_t limit = least + std::max(scaled[next->second], total / num_ranks / 1024);
    for (const std::uint64_t rank : wanting) {
      if (load[rank] > limit) continue;
      ranks[next->second] = static_cast<std::uint32_t>(rank);
      load[rank] += scaled[next->second];
      --left[rank];
      ++next;
    }
  }
  return ranks;
}

/// Returns random sizes. `kind` selects their distribution: 0 means log-normal, 1 a few different
/// sizes, 2 all equal, 3 half zeros, 4 all magnitudes, 5 near the largest number, and 6 one size
/// that is larger than the sum of all others.
Sizes some_sizes(std::size_t n, int kind, std::mt19937_64& random) {
  Sizes sizes(n);
  std::normal_distribution<double> normal;
  for (std::uint64_t& size : sizes) {
    const std::uint64_t draw = random();
    const auto log_normal = static_cast<std::uint64_t>(std::exp(normal(random)) * 60000);
    size = kind == 0   ? log_normal
           : kind == 1 ? draw % 40
           : kind == 2 ? 777
           : kind == 3 ? (draw % 2 == 0 ? 0 : log_normal)
           : kind == 4 ? draw >> (draw % 64)
           : kind == 5 ? ~std::uint64_t{0} - draw % 3
                       : log_normal;
  }
  if (kind == 6 && n > 0) sizes[random() % n] = std::uint64_t{1} << 62;
  return sizes;
}

std::vector<std::uint64_t> counts_of(const Ranks& ranks, std::uint64_t world) {
  std::vector<std::uint64_t> counts(world);
  for (const std::uint32_t rank : ranks) ++counts.at(rank);
  return counts;
}

/// Returns the largest sum of bytes of a rank, divided by the mean.
double imbalance(const Sizes& sizes, const Ranks& ranks, std::uint64_t world) {
  std::vector<double> sums(world);
  double total = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sums[ranks[i]] += static_cast<double>(sizes[i]);
    total += static_cast<double>(sizes[i]);
  }
  return *std::max_element(sums.begin(), sums.end()) / (total / static_cast<double>(world));
}

double mean_imbalance(std::uint64_t world, std::uint64_t batch) {
  std::mt19937_64 random(world * 1000 + batch);
  Dealer dealer(world);
  Ranks ranks(world * batch);
  double sum = 0;
  for (std::uint64_t step = 0; step < 1000; ++step) {
    const Sizes sizes = some_sizes(world * batch, 0, random);
    dealer.deal(step, sizes, ranks);
    sum += imbalance(sizes, ranks, world);
  }
  return sum / 1000;
}

TEST(DealerTest, IsItsSpecificationAndGivesEachRankItsNumberOfSamples) {
  std::mt19937_64 random(5);
  for (const std::uint64_t world : {1U, 2U, 3U, 7U, 8U, 64U, 100U}) {
    Dealer dealer(world);  // one Dealer for all steps, which reuses its buffers
    for (int kind = 0; kind < 7; ++kind) {
      for (int trial = 0; trial < 20; ++trial) {
        const std::size_t n = trial < 5 ? static_cast<std::size_t>(trial) : random() % (world * 20);
        const std::uint64_t step = trial % 4 == 3 ? random() : static_cast<std::uint64_t>(trial);
        const Sizes sizes = some_sizes(n, kind, random);
        Ranks ranks(n);
        dealer.deal(step, sizes, ranks);
        ASSERT_EQ(ranks, naive(world, step, sizes)) << world << " kind " << kind << " n " << n;
        const std::vector<std::uint64_t> counts = counts_of(ranks, world);
        for (std::uint64_t r = 0; r < world; ++r)
          ASSERT_EQ(counts[r], n / world + (r < n % world ? 1 : 0)) << world << " rank " << r;
      }
    }
  }
}

TEST(DealerTest, SlotsOfARankAreThoseDealtToItAscending) {
  std::mt19937_64 random(6);
  for (const std::uint64_t world : {1U, 3U, 8U, 40U}) {
    Dealer dealer(world);
    for (const std::size_t n : {std::size_t{0}, std::size_t{2}, 5 * world, 5 * world + 1}) {
      const Sizes sizes = some_sizes(n, 0, random);
      const Ranks ranks = deal(world, 9, sizes);
      for (std::uint64_t rank = 0; rank < world; ++rank) {
        Ranks expected;
        for (std::uint32_t i = 0; i < n; ++i) {
          if (ranks[i] == rank) expected.push_back(i);
        }
        Ranks slots{1, 2, 3};
        dealer.slots_of(rank, 9, sizes, slots);
        ASSERT_EQ(slots, expected) << world << " " << n << " " << rank;
      }
    }
  }
}

// docs/formats/order.md, Balanced bytes, version 2.
TEST(DealerTest, GoldenDealsNeverChange) {
  EXPECT_EQ(deal(3, 0, {5, 1, 9, 3, 3, 7}), (Ranks{2, 0, 0, 2, 1, 1}));
  EXPECT_EQ(deal(3, 1, {5, 1, 9, 3, 3, 7}), (Ranks{0, 1, 1, 0, 2, 2}));
  EXPECT_EQ(deal(3, 7, {5, 1, 9, 3, 3, 7, 0, 2}), (Ranks{0, 0, 1, 0, 2, 2, 1, 1}));
  EXPECT_EQ(deal(8, 2, {30, 20, 10}), (Ranks{2, 0, 1}));
  EXPECT_EQ(deal(4, 5, {100, 100, 100, 100, 100, 100, 100, 100}), (Ranks{1, 2, 3, 0, 0, 3, 2, 1}));
  Sizes sizes;
  for (std::uint64_t i = 0; i < 32; ++i) sizes.push_back((i * i * i * 7919 + 17) % 100'003);
  EXPECT_EQ(deal(4, 123, sizes), (Ranks{0, 2, 3, 0, 1, 0, 1, 0, 0, 1, 2, 2, 1, 3, 1, 2,
                                        1, 3, 2, 3, 1, 0, 1, 2, 0, 3, 2, 3, 3, 0, 3, 2}));
  for (std::uint64_t& size : sizes) size <<= 46;
  EXPECT_EQ(deal(4, 123, sizes), (Ranks{0, 2, 3, 0, 1, 0, 1, 0, 0, 1, 2, 2, 1, 3, 1, 2,
                                        1, 3, 2, 3, 1, 0, 1, 2, 0, 3, 2, 3, 3, 0, 3, 2}));
}

TEST(DealerTest, BytesAreNearlyEqualWithLogNormalSizes) {
  EXPECT_LT(mean_imbalance(8, 32), 1.01);
  EXPECT_LT(mean_imbalance(64, 32), 1.035);
  EXPECT_LT(mean_imbalance(8, 8), 1.15);
  EXPECT_LT(mean_imbalance(8, 4), 1.47);  // the largest sample causes most of it
  EXPECT_LT(mean_imbalance(2, 32), 1.01);
}

TEST(DealerTest, OneHugeSampleComesWithTheSmallest) {
  std::mt19937_64 random(8);
  Sizes sizes = some_sizes(8 * 16, 0, random);
  sizes[50] = std::uint64_t{1} << 30;
  const Ranks ranks = deal(8, 0, sizes);
  std::uint64_t largest_beside = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i != 50 && ranks[i] == ranks[50]) largest_beside = std::max(largest_beside, sizes[i]);
  }
  const auto smaller = std::count_if(sizes.begin(), sizes.end(),
                                     [&](std::uint64_t size) { return size < largest_beside; });
  EXPECT_LT(smaller, 20);
}

TEST(DealerTest, TheLargestSampleOfAStepComesToEveryRankInTurn) {
  const Sizes sizes{5, 50, 5, 5, 5, 5, 5, 5};
  for (std::uint64_t step = 0; step < 12; ++step) EXPECT_EQ(deal(4, step, sizes)[1], step % 4);
}

}  // namespace
}  // namespace shardwise::detail
