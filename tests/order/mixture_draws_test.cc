#include "order/mixture_draws.h"

#include <algorithm>
#include <cmath>

#include "order/arithmetic.h"
#include "order/key.h"
#include "order/permutation.h"
#include "order/weight_shares.h"
#include "support/says.h"
#include "support/support.h"

namespace shardwise::detail {
namespace {

using Weights = std::vector<double>;

constexpr std::uint64_t kBlock = MixtureDraws::kBlock;
constexpr std::uint64_t kEnd = MixtureDraws::kMaxSlots;

/// Implements docs/formats/order.md, Mixtures, literally and block by block.
class NaiveMixture {
 public:
  NaiveMixture(const Weights& weights, std::uint64_t seed)
      : shares_(weight_shares(weights, std::uint64_t{1} << 62, "data set")),
        num_datasets_(shares_.size()),
        seed_(seed) {
    std::size_t leaves = 1;
    while (leaves < shares_.size()) {
      leaves *= 2;
      ++depth_;
    }
    shares_.resize(leaves);
  }

  unsigned depth() const { return depth_; }

  std::vector<std::uint64_t> before_block(std::uint64_t block) const {
    std::vector<std::uint64_t> counts;
    split(1, 0, shares_.size(), block * kBlock, counts);
    counts.resize(num_datasets_);
    return counts;
  }

  std::vector<MixtureDraw> block(std::uint64_t b) const {
    const std::vector<std::uint64_t> begin = before_block(b);
    const std::vector<std::uint64_t> end = before_block(b + 1);
    std::vector<MixtureDraw> list;
    for (std::size_t d = 0; d < num_datasets_; ++d) {
      for (std::uint64_t i = begin[d]; i < end[d]; ++i) list.push_back({d, i});
    }
    EXPECT_EQ(list.size(), kBlock);
    const Permutation table(kBlock, derive_key(seed_, 0, KeyPurpose::kMixtureBlock, 0));
    const Hash128 key = derive_key(seed_, 0, KeyPurpose::kMixtureBlock, 1);
    const std::uint64_t word = mix64(key.low + b * (key.high | 1));
    std::vector<MixtureDraw> slots;
    for (std::uint64_t o = 0; o < kBlock; ++o) {
      std::uint64_t x = o;
      for (unsigned t = 0; t < 4; ++t) x = table(x ^ ((word >> (8 * t)) & 0xff));
      slots.push_back(list[x ^ ((word >> 32) & 0xff)]);
    }
    return slots;
  }

 private:
  void split(std::uint64_t node, std::size_t lo, std::size_t hi, std::uint64_t x,
             std::vector<std::uint64_t>& counts) const {
    if (hi - lo == 1) {
      counts.push_back(x);
      return;
    }
    const std::size_t mid = (lo + hi) / 2;
    uint128 part = 0;
    uint128 whole = 0;
    for (std::size_t d = lo; d < hi; ++d) {
      whole += shares_[d];
      if (d < mid) part += shares_[d];
    }
    std::uint64_t left = 0;
    if (part > 0 && part == whole) left = x;
    if (part > 0 && part < whole) {
      const uint128 ratio = (part << 64) / whole;
      const std::uint64_t phase = derive_key(seed_, node, KeyPurpose::kMixturePhase).low;
      left = static_cast<std::uint64_t>((x * ratio + phase) >> 64);
    }
    split(2 * node, lo, mid, left, counts);
    split(2 * node + 1, mid, hi, x - left, counts);
  }

  std::vector<std::uint64_t> shares_;
  std::size_t num_datasets_;
  std::uint64_t seed_;
  unsigned depth_ = 0;
};

std::vector<Weights> many_weights() {
  std::vector<Weights> all{
      {1},
      {0, 3},
      {3, 0},
      {1, 1},
      {5, 1, 2.5},
      {1, 1e-12},
      {1e12, 1, 1e-12},
      {0, 0, 1, 0, 0},
      {0, 1e12, 0, 1e-12, 0, 1, 0, 0, 7},
      {1e-300, 1e300},
      {1, 1, 1, 1, 1, 1, 1, 1},
      {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
  };
  for (const std::size_t d : {4U, 6U, 7U, 17U, 100U}) {
    Weights equal(d, 0.1);
    Weights geometric;
    for (std::size_t i = 0; i < d; ++i)
      geometric.push_back(std::ldexp(1, static_cast<int>(i % 40)));
    all.push_back(equal);
    all.push_back(geometric);
  }
  return all;
}

/// Returns blocks near the beginning, in the middle, near 2^61 and at the end of the mixture.
std::vector<std::uint64_t> some_blocks() {
  const std::uint64_t far = (std::uint64_t{1} << 61) / kBlock;
  return {0, 1, 2, 3, 4, 1000, 1001, 123'456'789'012, far - 1, far, far + 1, kEnd / kBlock - 1};
}

TEST(MixtureDrawsTest, AgreesWithItsSpecification) {
  for (const Weights& weights : many_weights()) {
    for (const std::uint64_t seed : {0U, 1U, 77U}) {
      const NaiveMixture naive(weights, seed);
      const MixtureDraws draws(weights, seed);
      for (const std::uint64_t b : some_blocks()) {
        std::vector<std::uint64_t> before = naive.before_block(b);
        const std::vector<MixtureDraw> slots = naive.block(b);
        for (std::uint64_t o = 0; o < kBlock; ++o) {
          const std::uint64_t slot = b * kBlock + o;
          ASSERT_EQ(draws.at(slot), slots[o]) << weights.size() << " data sets, slot " << slot;
          ASSERT_EQ(draws.slot_of(slots[o].dataset, slots[o].draw), slot) << weights.size();
          ASSERT_EQ(draws.block_of(slots[o].dataset, slots[o].draw), b);
          if (o % 51 == 0) {
            for (std::size_t d = 0; d < weights.size(); ++d)
              ASSERT_EQ(draws.draws_before(d, slot), before[d]) << d << ", slot " << slot;
          }
          ++before[slots[o].dataset];
        }
        for (std::size_t d = 0; d < weights.size(); ++d)
          ASSERT_EQ(draws.draws_before(d, (b + 1) * kBlock), before[d]);
      }
    }
  }
}

TEST(MixtureDrawsTest, CountsFollowTheSharesForever) {
  for (const Weights& weights : many_weights()) {
    const NaiveMixture naive(weights, 9);
    const MixtureDraws draws(weights, 9);
    std::vector<std::uint64_t> before(weights.size());
    std::vector<std::uint64_t> blocks = some_blocks();
    for (std::uint64_t b = 5; b < 400; ++b) blocks.push_back(b);
    blocks.push_back(kEnd / kBlock);
    std::sort(blocks.begin(), blocks.end());
    for (const std::uint64_t b : blocks) {
      const std::uint64_t x = b * kBlock;
      std::uint64_t total = 0;
      for (std::size_t d = 0; d < weights.size(); ++d) {
        const std::uint64_t count = draws.draws_before(d, x);
        ASSERT_GE(count, before[d]);
        before[d] = count;
        total += count;
        // The error of the count, times 2^62.
        const uint128 wanted = static_cast<uint128>(x) * draws.shares()[d];
        const uint128 actual = static_cast<uint128>(count) << 62;
        const uint128 off = wanted > actual ? wanted - actual : actual - wanted;
        ASSERT_LE(off, (static_cast<uint128>(5 * naive.depth()) << 62) / 4) << d << ", slot " << x;
      }
      ASSERT_EQ(total, x);
    }
  }
}

TEST(MixtureDrawsTest, LocatesWithAnyStrideAsOneByOne) {
  for (const Weights& weights : many_weights()) {
    const MixtureDraws draws(weights, 3);
    for (const std::uint64_t stride : {1U, 2U, 7U, 8U, 64U, 255U, 256U, 257U, 1000U}) {
      for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{200}, kEnd / 2 - 5}) {
        std::vector<std::uint32_t> dataset(300);
        std::vector<std::uint64_t> draw(300);
        draws.locate(first, stride, dataset, draw);
        for (std::size_t i = 0; i < dataset.size(); ++i) {
          ASSERT_EQ((MixtureDraw{dataset[i], draw[i]}), draws.at(first + i * stride)) << stride;
        }
      }
    }
  }
}

TEST(MixtureDrawsTest, ADataSetWithoutWeightIsNeverDrawn) {
  const MixtureDraws draws(Weights{1, 0, 2, 0}, 1);
  for (const std::size_t d : {1U, 3U}) {
    EXPECT_EQ(draws.draws_before(d, kEnd), 0U);
    EXPECT_EQ(draws.slot_of(d, 0), std::nullopt);
    EXPECT_EQ(draws.slots_of_draws(d, 0, 5), std::pair(kEnd, kEnd));
  }
}

TEST(MixtureDrawsTest, KnowsWhereTheMixtureEnds) {
  const MixtureDraws draws(Weights{5, 1, 2.5, 1e-9}, 8);
  for (std::size_t d = 0; d < 4; ++d) {
    const std::uint64_t all = draws.draws_before(d, kEnd);
    const std::uint64_t slot = draws.slot_of(d, all - 1).value();
    EXPECT_EQ(draws.at(slot), (MixtureDraw{d, all - 1}));
    for (const std::uint64_t beyond : {all, all + 1000, kEnd, ~std::uint64_t{0}}) {
      EXPECT_EQ(draws.slot_of(d, beyond), std::nullopt) << d << " " << beyond;
    }
    EXPECT_EQ(draws.slots_of_draws(d, all - 1, all + 1), std::pair(slot / kBlock * kBlock, kEnd));
  }
}

TEST(MixtureDrawsTest, BoundsTheSlotsOfARangeOfDraws) {
  const MixtureDraws draws(Weights{5, 1, 0.01}, 8);
  for (std::size_t d = 0; d < 3; ++d) {
    for (std::uint64_t first = 0; first < 900; first += 37) {
      const std::uint64_t last = first + 1 + first % 100;
      std::uint64_t least = kEnd;
      std::uint64_t greatest = 0;
      for (std::uint64_t i = first; i < last; ++i) {
        const std::uint64_t slot = draws.slot_of(d, i).value();
        least = std::min(least, slot);
        greatest = std::max(greatest, slot);
      }
      EXPECT_EQ(draws.slots_of_draws(d, first, last),
                std::pair(least / kBlock * kBlock, (greatest / kBlock + 1) * kBlock));
    }
  }
}

/// Returns by how many standard deviations chi-square, the sum of (count - expected)^2 / expected,
/// exceeds its mean. The mean is the number of degrees of freedom.
double chi_square_z(const std::vector<std::uint64_t>& counts, double expected, double freedom) {
  double sum = 0;
  for (const std::uint64_t count : counts) {
    const double off = static_cast<double>(count) - expected;
    sum += off * off / expected;
  }
  return (sum - freedom) / std::sqrt(2 * freedom);
}

TEST(MixtureDrawsTest, BlocksAreWellMixed) {
  constexpr std::uint64_t kBlocks = 4096;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    // With a single data set, the number of a slot's draw within its block is the slot's entry in
    // the shuffled list.
    const MixtureDraws draws(Weights{1}, seed);
    std::vector<std::uint64_t> places(kBlock * kBlock);  // [offset][entry]
    // Counts of the differences between entries: of adjacent slots, of slots at distance 128, and
    // of the same slot in adjacent blocks.
    std::vector<std::uint64_t> steps(kBlock);
    std::vector<std::uint64_t> far_steps(kBlock);
    std::vector<std::uint64_t> block_steps(kBlock);
    std::vector<std::uint64_t> pairs(kBlock * kBlock);  // pairs of the entries of slots 0 and 1
    std::vector<std::uint8_t> before(kBlock);
    for (std::uint64_t b = 0; b < kBlocks; ++b) {
      std::vector<std::uint8_t> entries(kBlock);
      for (std::uint64_t o = 0; o < kBlock; ++o) {
        entries[o] = static_cast<std::uint8_t>(draws.at(b * kBlock + o).draw);
        ++places[o * kBlock + entries[o]];
        if (o > 0) ++steps[static_cast<std::uint8_t>(entries[o] - entries[o - 1])];
        if (o >= 128) ++far_steps[static_cast<std::uint8_t>(entries[o] - entries[o - 128])];
        if (b > 0) ++block_steps[static_cast<std::uint8_t>(entries[o] - before[o])];
      }
      ++pairs[entries[0] * kBlock + entries[1]];
      before = entries;
    }
    const auto blocks = static_cast<double>(kBlocks);
    EXPECT_LT(std::abs(chi_square_z(places, blocks / 256, 255 * 255)), 4) << seed;
    EXPECT_EQ(steps[0] + far_steps[0], 0U);
    steps.erase(steps.begin());
    far_steps.erase(far_steps.begin());
    EXPECT_LT(std::abs(chi_square_z(steps, blocks, 254)), 4) << seed;
    EXPECT_LT(std::abs(chi_square_z(far_steps, blocks * 128 / 255, 254)), 4) << seed;
    EXPECT_LT(std::abs(chi_square_z(block_steps, blocks - 1, 255)), 4) << seed;
    EXPECT_LE(*std::max_element(pairs.begin(), pairs.end()), 4U) << seed;
  }
}

// docs/formats/order.md, Mixtures, version 2.
TEST(MixtureDrawsTest, GoldenMixtureNeverChanges) {
  const MixtureDraws draws(Weights{5, 1, 2.5}, 17);
  EXPECT_EQ(draws.shares(), (std::vector<std::uint64_t>{2712756481427875237, 542551296285575048,
                                                        1356378240713937619}));
  std::vector<MixtureDraw> found;
  for (std::uint64_t slot = 0; slot < 8; ++slot) found.push_back(draws.at(slot));
  EXPECT_EQ(found, (std::vector<MixtureDraw>{
                       {2, 0}, {2, 12}, {0, 113}, {2, 65}, {0, 29}, {0, 0}, {2, 62}, {0, 87}}));
  EXPECT_EQ(draws.at(1'000'000'000'000), (MixtureDraw{0, 588235294265}));
  EXPECT_EQ(draws.at(kEnd - 1), (MixtureDraw{0, 2712756481427875108}));
}

TEST(MixtureDrawsTest, RefusesWeightsThatMeanNothing) {
  const auto text = [](const Weights& weights) {
    return test::error_text([&] { MixtureDraws(weights, 0); });
  };
  EXPECT_THAT(text({}), testing::HasSubstr("no weight"));
  EXPECT_THAT(text({0, 0}), testing::HasSubstr("no weight"));
  EXPECT_THAT(text({1, 2, -1}), test::Says("data set 2", "at least 0"));
  EXPECT_THAT(text({1, NAN}), testing::HasSubstr("a weight is nan"));
  EXPECT_THAT(text({INFINITY}), testing::HasSubstr("a weight is inf"));
  EXPECT_THAT(text(Weights(MixtureDraws::kMaxDatasets + 1, 1)), testing::HasSubstr("2^20"));
}

}  // namespace
}  // namespace shardwise::detail
