#include "order/kept_slots.h"

#include <algorithm>

namespace shardwise::detail {

KeptSlots::KeptSlots(std::uint64_t num_slots, std::vector<Range> skipped) : num_slots_(num_slots) {
  std::sort(skipped.begin(), skipped.end(),
            [](const auto& x, const auto& y) { return x.begin < y.begin; });
  for (const Range& range : skipped) {
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

}  // namespace shardwise::detail
