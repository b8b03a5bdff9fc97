#include "order/deal.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"

namespace shardwise::detail {

namespace {

unsigned size_class(std::uint64_t scaled) noexcept {
  // A double represents an integer of up to 2^32 exactly. The class consists of the double's
  // exponent and the upper four bits of its fraction, which are adjacent. (On CPUs without lzcnt,
  // this is faster than finding the highest bit.)
  const auto bits =
      std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<std::int64_t>(scaled + 1)));
  return static_cast<unsigned>(bits >> 48) - 16 * 1023;
}

std::uint64_t scaled_size(std::uint64_t sample) noexcept { return sample >> 32; }
std::uint32_t slot_of(std::uint64_t sample) noexcept { return static_cast<std::uint32_t>(sample); }

}  // namespace

std::uint64_t Dealer::classify(std::span<const std::uint64_t> sizes, unsigned shift) {
  counts_.fill(0);
  std::uint16_t* const classes = classes_.data();
  std::uint64_t all_bits = 0;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::uint64_t scaled = (sizes[i] >> shift) & 0xffffffffU;
    const unsigned each = size_class(scaled);
    classes[i] = static_cast<std::uint16_t>(each);
    ++counts_[each];
    all_bits |= sizes[i];
    total += scaled;
  }
  total_ = total;
  return all_bits;
}

void Dealer::sort(std::span<const std::uint64_t> sizes) {
  SHARDWISE_ASSERT(sizes.size() <= std::size_t{1} << 31);
  classes_.resize(sizes.size());
  sorted_.resize(sizes.size() + 1);
  // Sizes of more than 32 bits are rare, so the first pass assumes smaller sizes and detects larger
  // ones.
  unsigned shift = 0;
  const auto width = static_cast<unsigned>(std::bit_width(classify(sizes, 0)));
  if (width > 32) {
    shift = width - 32;
    classify(sizes, shift);
  }
  // Replaces the count of each class by the position at which the class begins, from the highest
  // possible class down.
  std::uint32_t begin = 0;
  for (std::size_t i = 16 * std::min(width, 32U) + 1; begin < sizes.size();) {
    const std::uint32_t count = counts_[--i];
    counts_[i] = begin;
    begin += count;
  }
  const std::uint16_t* const classes = classes_.data();
  std::uint64_t* const sorted = sorted_.data();
  for (std::size_t i = 0; i < sizes.size(); ++i)
    sorted[counts_[classes[i]]++] = (sizes[i] >> shift) << 32 | i;
  sorted[sizes.size()] = 0;
}

void Dealer::deal_waves(std::uint64_t step) {
  const std::uint64_t num_samples = sorted_.size() - 1;
  const std::uint64_t num_ranks = std::min(world_, num_samples);
  const std::uint64_t samples_each = num_samples / world_;
  const std::uint64_t extra = num_samples % world_;
  waiting_.resize(num_ranks);
  std::uint64_t rank = step % num_ranks;
  for (Rank& each : waiting_) {
    each = {0, static_cast<std::uint32_t>(samples_each + (rank < extra ? 1 : 0)),
            static_cast<std::uint32_t>(rank)};
    if (++rank == num_ranks) rank = 0;
  }
  dealt_.resize(num_samples + 1);
  std::uint32_t* const dealt = dealt_.data();
  const std::uint64_t* const sorted = sorted_.data();
  const std::uint64_t least_width = total_ / num_ranks / 1024;
  std::uint64_t next = 0;
  std::uint64_t least_load = 0;
  std::uint64_t wave = 0;
  while (next != num_samples) {
    const std::uint64_t limit = least_load + std::max(scaled_size(sorted[next]), least_width);
    least_load = ~std::uint64_t{0};
    const auto visit = [&](Rank& waiting) {
      // This code has no branch, because the CPU could not predict which rank takes a sample. A
      // rank that takes no sample writes to an element that the next rank overwrites.
      const bool takes = waiting.load <= limit;
      const std::uint64_t load = waiting.load + (takes ? scaled_size(sorted[next]) : 0);
      dealt[next] = waiting.rank;
      waiting.load = load;
      waiting.left -= static_cast<std::uint32_t>(takes);
      least_load = std::min(least_load, load);
      next += static_cast<std::uint64_t>(takes);
    };
    if (wave % 2 == 0) {
      std::for_each(waiting_.begin(), waiting_.end(), visit);
    } else {
      std::for_each(waiting_.rbegin(), waiting_.rend(), visit);
    }
    ++wave;
    if (wave < samples_each) continue;  // no rank can have all its samples after these waves
    std::erase_if(waiting_, [](const Rank& each) { return each.left == 0; });
    least_load = ~std::uint64_t{0};
    for (const Rank& each : waiting_) least_load = std::min(least_load, each.load);
  }
}

void Dealer::deal(std::uint64_t step, std::span<const std::uint64_t> sizes,
                  std::span<std::uint32_t> ranks) {
  SHARDWISE_ASSERT(ranks.size() == sizes.size());
  if (sizes.empty()) return;
  sort(sizes);
  deal_waves(step);
  for (std::size_t i = 0; i < sizes.size(); ++i) ranks[slot_of(sorted_[i])] = dealt_[i];
}

void Dealer::slots_of(std::uint64_t rank, std::uint64_t step, std::span<const std::uint64_t> sizes,
                      std::vector<std::uint32_t>& slots) {
  slots.clear();
  if (sizes.empty()) return;
  sort(sizes);
  deal_waves(step);
  const std::uint32_t* const dealt = dealt_.data();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (dealt[i] == rank) slots.push_back(slot_of(sorted_[i]));
  }
  std::sort(slots.begin(), slots.end());
}

}  // namespace shardwise::detail
