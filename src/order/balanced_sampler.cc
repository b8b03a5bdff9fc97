#include "shardwise/order/balanced_sampler.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "order/check_options.h"
#include "shardwise/base/error.h"

namespace shardwise {

namespace {

/// Refuses what the plain sampler of that kind would refuse.
const OrderOptions& checked_balanced(const OrderOptions& options, const ShardOffsets& offsets) {
  OrderOptions plain = options;
  plain.balance_bytes = false;
  order_detail::checked(options.sampler, plain);
  if (options.sampler != SamplerKind::kChunked && options.sampler != SamplerKind::kSequential &&
      options.sampler != SamplerKind::kSharded) {
    throw InvalidArgument(
        "the " + std::string(sampler_name(options.sampler)) + " sampler cannot balance bytes", {},
        "use chunked, sharded or sequential");
  }
  if (options.sampler == SamplerKind::kSharded) order_detail::checked(offsets);
  return options;
}

/// The first slots of the rows of `sizes`, those whose sizes differ most first.
std::vector<std::uint64_t> rows_by_range(const std::vector<std::uint64_t>& sizes,
                                         std::uint64_t world) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> rows;
  for (std::size_t row = 0; row < sizes.size(); row += world) {
    const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(row);
    const auto end =
        sizes.begin() + static_cast<std::ptrdiff_t>(std::min(row + world, sizes.size()));
    const auto [smallest, largest] = std::minmax_element(begin, end);
    rows.emplace_back(~(*largest - *smallest), row);
  }
  std::sort(rows.begin(), rows.end());
  std::vector<std::uint64_t> first;
  first.reserve(rows.size());
  for (const auto& [range, row] : rows) first.push_back(row);
  return first;
}

}  // namespace

struct BalancedSampler::Block {
  std::uint64_t first = 0;             ///< kept slot of the first sample
  std::vector<std::uint64_t> samples;  ///< by kept slot
  std::vector<std::uint32_t> ranks;    ///< who gets it
};

BalancedSampler::BalancedSampler(SampleCount n, const OrderOptions& options, SampleBytes bytes,
                                 ShardOffsets offsets)
    : OrderedSampler(options.sampler, n.value(), offsets, checked_balanced(options, offsets)),
      bytes_(std::move(bytes)) {
  if (!bytes_) {
    throw InvalidArgument("balance_bytes without the sizes of the samples", {},
                          "give a function that tells the bytes of a sample");
  }
  mutable_spec().balance_bytes = true;
  prepare();
}

std::unique_ptr<Sampler> BalancedSampler::clone() const {
  return std::make_unique<BalancedSampler>(*this);
}

void BalancedSampler::prepare() {
  OrderedSampler::prepare();
  cached_block_ = ~std::uint64_t{0};
}

BalancedSampler::Block BalancedSampler::deal(std::uint64_t number) const {
  const std::uint64_t world = world_size();
  const std::uint64_t delivered = partition().delivered_slots();
  Block block;
  block.first = number * kRows * world;
  block.samples.resize(std::min(kRows * world, delivered - block.first));
  block.ranks.resize(block.samples.size());
  fill_kept(block.first, 1, block.samples);

  std::vector<std::uint64_t> sizes;
  sizes.reserve(block.samples.size());
  for (const std::uint64_t sample : block.samples) sizes.push_back(bytes_(sample));

  std::vector<std::uint64_t> load(world);
  std::vector<std::uint32_t> slots;
  std::vector<std::uint32_t> ranks;
  for (const std::uint64_t row : rows_by_range(sizes, world)) {
    const std::uint64_t row_slot = block.first + row;
    const std::uint64_t resumed =
        first_kept() > row_slot && first_kept() < row_slot + world ? first_kept() - row_slot : 0;
    const std::uint64_t end = std::min(world, block.samples.size() - row);
    slots.resize(end - resumed);
    std::iota(slots.begin(), slots.end(), static_cast<std::uint32_t>(resumed));
    ranks = slots;
    std::sort(slots.begin(), slots.end(), [&](std::uint32_t x, std::uint32_t y) {
      return std::pair(~sizes[row + x], x) < std::pair(~sizes[row + y], y);
    });
    std::sort(ranks.begin(), ranks.end(), [&](std::uint32_t x, std::uint32_t y) {
      return std::pair(load[x], (x + number) % world) < std::pair(load[y], (y + number) % world);
    });
    for (std::size_t i = 0; i < slots.size(); ++i) {
      block.ranks[row + slots[i]] = ranks[i];
      load[ranks[i]] += sizes[row + slots[i]];
    }
    for (std::uint32_t i = 0; i < resumed; ++i) block.ranks[row + i] = i;  // consumed before
  }
  return block;
}

void BalancedSampler::evaluate(std::uint64_t first, std::span<std::uint64_t> out) const {
  for (std::uint64_t& sample : out) {
    const std::uint64_t number = first / kRows;
    if (number != cached_block_ || first_kept() != cached_first_) {
      const Block block = deal(number);
      cached_.assign(kRows, 0);
      for (std::size_t i = 0; i < block.samples.size(); ++i) {
        if (block.ranks[i] == rank()) cached_[i / world_size()] = block.samples[i];
      }
      cached_block_ = number;
      cached_first_ = first_kept();
    }
    sample = cached_[first % kRows];
    ++first;
  }
}

std::vector<Delivery> BalancedSampler::find_deliveries(std::uint64_t sample) const {
  std::vector<Delivery> found = OrderedSampler::find_deliveries(sample);
  for (Delivery& delivery : found) {
    const std::uint64_t kept_slot = delivery.index * world_size() + delivery.rank;
    const Block block = deal(delivery.index / kRows);
    delivery.rank = block.ranks[kept_slot - block.first];
  }
  return found;
}

}  // namespace shardwise
