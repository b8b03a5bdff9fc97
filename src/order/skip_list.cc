#include "shardwise/order/skip_list.h"

#include <algorithm>
#include <string>
#include <utility>

#include "order/arithmetic.h"
#include "shardwise/base/error.h"
#include "shardwise/order/permutation.h"

namespace shardwise {

void SkipList::add_sample(std::uint64_t sample) {
  const auto at = std::lower_bound(samples_.begin(), samples_.end(), sample);
  if (at == samples_.end() || *at != sample) samples_.insert(at, sample);
}

void SkipList::add_slots(std::uint64_t epoch, std::uint64_t begin, std::uint64_t end) {
  if (begin > end) {
    throw InvalidArgument(
        "slots [" + std::to_string(begin) + ", " + std::to_string(end) + ") cannot be left out", {},
        "the range ends before it begins");
  }
  if (begin == end) return;
  // Ranges that overlap or touch the new one become one with it.
  Slots added{epoch, begin, end};
  const auto first = std::find_if(slots_.begin(), slots_.end(), [&](const Slots& s) {
    return s.epoch > epoch || (s.epoch == epoch && s.end >= begin);
  });
  auto last = first;
  for (; last != slots_.end() && last->epoch == epoch && last->begin <= end; ++last) {
    added.begin = std::min(added.begin, last->begin);
    added.end = std::max(added.end, last->end);
  }
  slots_.insert(slots_.erase(first, last), added);
}

void SkipList::add_steps(std::uint64_t epoch, std::uint64_t first, std::uint64_t last,
                         std::uint64_t world_size, std::uint64_t batch_size) {
  using order_detail::uint128;
  const auto slot = [&](std::uint64_t step) {
    const uint128 product = static_cast<uint128>(step) * world_size * batch_size;
    return product < kMaxSamples ? static_cast<std::uint64_t>(product) : kMaxSamples;
  };
  add_slots(epoch, slot(first), slot(last));
}

void SkipList::merge(const SkipList& other) {
  for (const std::uint64_t sample : other.samples_) add_sample(sample);
  for (const Slots& range : other.slots_) add_slots(range.epoch, range.begin, range.end);
}

KeptSlots::KeptSlots(std::uint64_t num_slots, std::vector<SkipList::Slots> skipped)
    : num_slots_(num_slots) {
  std::sort(skipped.begin(), skipped.end(),
            [](const auto& x, const auto& y) { return x.begin < y.begin; });
  for (const SkipList::Slots& range : skipped) {
    const std::uint64_t end = std::min(range.end, num_slots);
    if (range.begin >= end) continue;
    if (!gaps_.empty() && gaps_.back().end >= range.begin) {
      Gap& last = gaps_.back();
      if (end > last.end) {
        last.skipped += end - last.end;
        last.end = end;
      }
    } else {
      gaps_.push_back({range.begin, end, num_skipped() + end - range.begin});
    }
  }
}

std::uint64_t KeptSlots::slot(std::uint64_t kept) const noexcept {
  const auto after =
      std::upper_bound(gaps_.begin(), gaps_.end(), kept,
                       [](std::uint64_t k, const Gap& g) { return k < g.kept_begin(); });
  return after == gaps_.begin() ? kept : kept + (after - 1)->skipped;
}

std::uint64_t KeptSlots::run_length(std::uint64_t kept) const noexcept {
  const auto next =
      std::upper_bound(gaps_.begin(), gaps_.end(), kept,
                       [](std::uint64_t k, const Gap& g) { return k < g.kept_begin(); });
  return next == gaps_.end() ? ~std::uint64_t{0} - kept : next->kept_begin() - kept;
}

std::uint64_t KeptSlots::kept_before(std::uint64_t slot) const noexcept {
  const auto after = std::upper_bound(gaps_.begin(), gaps_.end(), slot,
                                      [](std::uint64_t s, const Gap& g) { return s < g.begin; });
  if (after == gaps_.begin()) return slot;
  const Gap& gap = *(after - 1);
  return std::max(slot, gap.end) - gap.skipped;
}

bool KeptSlots::is_kept(std::uint64_t slot) const noexcept {
  const auto after = std::upper_bound(gaps_.begin(), gaps_.end(), slot,
                                      [](std::uint64_t s, const Gap& g) { return s < g.begin; });
  return after == gaps_.begin() || slot >= (after - 1)->end;
}

}  // namespace shardwise
