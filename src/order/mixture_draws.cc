#include "order/mixture_draws.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "order/arithmetic.h"
#include "order/key.h"
#include "order/permutation.h"
#include "order/weight_shares.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

namespace {

constexpr std::uint64_t kMixtureShares = std::uint64_t{1} << 62;

Permutation block_table(std::uint64_t seed) {
  return {MixtureDraws::kBlock, derive_key(seed, 0, KeyPurpose::kMixtureBlock, 0)};
}

}  // namespace

inline std::uint64_t MixtureDraws::Node::left(std::uint64_t x) const noexcept {
  return static_cast<std::uint64_t>((static_cast<uint128>(x) * ratio + phase) >> 64);
}

MixtureDraws::MixtureDraws(std::span<const double> weights, std::uint64_t seed,
                           std::string_view unit) {
  if (weights.size() > kMaxDatasets) {
    throw InvalidArgument("the mixture has too many data sets", {}, "give at most 2^20 data sets");
  }
  shares_ = weight_shares(weights, kMixtureShares, unit);

  const std::size_t leaves = std::bit_ceil(shares_.size());
  depth_ = static_cast<unsigned>(std::bit_width(leaves) - 1);
  std::vector<std::uint64_t> sums(2 * leaves);  // for each node, the sum of the shares below it
  std::copy(shares_.begin(), shares_.end(), sums.begin() + static_cast<std::ptrdiff_t>(leaves));
  nodes_.resize(leaves);
  for (std::size_t i = leaves - 1; i > 0; --i) {
    const std::uint64_t part = sums[2 * i];
    const std::uint64_t whole = part + sums[2 * i + 1];
    sums[i] = whole;
    if (part == 0) continue;
    if (part == whole) {
      nodes_[i] = {~std::uint64_t{0}, ~std::uint64_t{0}};
    } else {
      nodes_[i] = {static_cast<std::uint64_t>((static_cast<uint128>(part) << 64) / whole),
                   derive_key(seed, i, KeyPurpose::kMixturePhase).low};
    }
  }

  const Permutation table = block_table(seed);
  for (std::size_t i = 0; i < kBlock; ++i) {
    table_[i] = static_cast<std::uint8_t>(table(i));
    inverse_[table_[i]] = static_cast<std::uint8_t>(i);
  }
  const Hash128 key = derive_key(seed, 0, KeyPurpose::kMixtureBlock, 1);
  key_begin_ = key.low;
  key_step_ = key.high | 1;
}

inline std::uint64_t MixtureDraws::block_key(std::uint64_t block) const noexcept {
  return mix64(key_begin_ + block * key_step_);
}

inline std::uint64_t MixtureDraws::entry_of(std::uint64_t key,
                                            std::uint64_t offset) const noexcept {
  std::uint64_t x = offset;
  for (unsigned round = 0; round < 4; ++round) {
    x = table_[(x ^ key) & 0xff];
    key >>= 8;
  }
  return (x ^ key) & 0xff;
}

inline std::uint64_t MixtureDraws::offset_of(std::uint64_t key,
                                             std::uint64_t entry) const noexcept {
  std::uint64_t x = (entry ^ (key >> 32)) & 0xff;
  for (unsigned round = 4; round-- > 0;) x = (inverse_[x] ^ (key >> (8 * round))) & 0xff;
  return x;
}

/// Follows an entry of a block from the root of the tree to its leaf. A node has the draws [begin,
/// end) in the block, first those of its left side.
inline MixtureDraw MixtureDraws::descend(std::uint64_t block, std::uint64_t entry) const noexcept {
  std::uint64_t begin = block * kBlock;
  std::uint64_t end = begin + kBlock;
  std::uint64_t i = 1;
  for (unsigned level = 0; level < depth_; ++level) {
    const std::uint64_t left_begin = nodes_[i].left(begin);
    const std::uint64_t left_end = nodes_[i].left(end);
    const std::uint64_t count = left_end - left_begin;
    // This code has no branch, because the CPU could not predict it.
    const std::uint64_t right = entry >= count ? 1 : 0;
    const std::uint64_t mask = 0 - right;
    entry -= count & mask;
    begin = ((begin - left_begin) & mask) | (left_begin & ~mask);
    end = ((end - left_end) & mask) | (left_end & ~mask);
    i = 2 * i + right;
  }
  return {i - nodes_.size(), begin + entry};
}

void MixtureDraws::locate(std::uint64_t first, std::uint64_t stride,
                          std::span<std::uint32_t> dataset,
                          std::span<std::uint64_t> draw) const noexcept {
  SHARDWISE_ASSERT(dataset.size() == draw.size());
  std::uint64_t slot = first;
  for (std::size_t i = 0; i < dataset.size(); ++i) {
    const MixtureDraw found = at(slot);
    dataset[i] = static_cast<std::uint32_t>(found.dataset);
    draw[i] = found.draw;
    slot += stride;
  }
}

MixtureDraw MixtureDraws::at(std::uint64_t slot) const noexcept {
  SHARDWISE_ASSERT_HOT(slot < kMaxSlots);
  const std::uint64_t block = slot / kBlock;
  return descend(block, entry_of(block_key(block), slot % kBlock));
}

MixtureDraws::Part MixtureDraws::part(std::size_t dataset, std::uint64_t block) const noexcept {
  Part part{block * kBlock, (block + 1) * kBlock, 0};
  std::uint64_t i = 1;
  for (unsigned level = depth_; level-- > 0;) {
    const std::uint64_t left_begin = nodes_[i].left(part.begin);
    const std::uint64_t left_end = nodes_[i].left(part.end);
    const std::uint64_t right = (dataset >> level) & 1;
    if (right != 0) {
      part = {part.begin - left_begin, part.end - left_end, part.entry + left_end - left_begin};
    } else {
      part = {left_begin, left_end, part.entry};
    }
    i = 2 * i + right;
  }
  return part;
}

std::uint64_t MixtureDraws::draws_before(std::size_t dataset, std::uint64_t slot) const noexcept {
  SHARDWISE_ASSERT_HOT(dataset < num_datasets() && slot <= kMaxSlots);
  const std::uint64_t block = slot / kBlock;
  const std::uint64_t offset = slot % kBlock;
  const auto [begin, end, entry] = part(dataset, block);
  if (offset == 0) return begin;
  const std::uint64_t key = block_key(block);
  std::uint64_t draws = begin;
  for (std::uint64_t e = entry; e < entry + (end - begin); ++e) {
    draws += offset_of(key, e) < offset ? 1 : 0;
  }
  return draws;
}

std::optional<std::uint64_t> MixtureDraws::block_of(std::size_t dataset,
                                                    std::uint64_t draw) const noexcept {
  SHARDWISE_ASSERT_HOT(dataset < num_datasets());
  if (shares_[dataset] == 0) return std::nullopt;
  // If draws were not permuted in blocks, draw i of the left side of a node would be the node's
  // draw x with left(x) = i and left(x + 1) = i + 1. Hence
  //
  //     left:   x = floor(((i + 1) * 2^64 - f - 1) / r)
  //     right:  x = floor((i * 2^64 + f) / (2^64 - r)), likewise from x - left(x)
  //
  // Applied from the leaf up to the root, this gives a slot in the same block as the searched slot.
  constexpr uint128 kOne = static_cast<uint128>(1) << 64;
  std::uint64_t x = draw;
  for (std::uint64_t i = nodes_.size() + dataset; i > 1; i /= 2) {
    if (x >= kMaxSlots) return std::nullopt;
    const Node& node = nodes_[i / 2];
    const uint128 above = i % 2 == 0 ? ((x + 1) * kOne - node.phase - 1) / node.ratio
                                     : (x * kOne + node.phase) / (kOne - node.ratio);
    x = static_cast<std::uint64_t>(std::min<uint128>(above, kMaxSlots));
  }
  if (x >= kMaxSlots) return std::nullopt;
  return x / kBlock;
}

std::optional<std::uint64_t> MixtureDraws::slot_of(std::size_t dataset,
                                                   std::uint64_t draw) const noexcept {
  const std::optional<std::uint64_t> block = block_of(dataset, draw);
  if (!block) return std::nullopt;
  const Part found = part(dataset, *block);
  return *block * kBlock + offset_of(block_key(*block), found.entry + (draw - found.begin));
}

std::pair<std::uint64_t, std::uint64_t> MixtureDraws::slots_of_draws(
    std::size_t dataset, std::uint64_t first, std::uint64_t last) const noexcept {
  SHARDWISE_ASSERT(first < last);
  const std::optional<std::uint64_t> begin = block_of(dataset, first);
  const std::optional<std::uint64_t> end = block_of(dataset, last - 1);
  return {begin ? *begin * kBlock : kMaxSlots, end ? (*end + 1) * kBlock : kMaxSlots};
}

}  // namespace shardwise::detail
