#include "data/prefetch_schedule.h"

#include <algorithm>
#include <iterator>

namespace shardwise::detail {

PrefetchSchedule::PrefetchSchedule(std::vector<UseInterval> uses, std::uint64_t max_ahead)
    : uses_(std::move(uses)), max_ahead_(std::min<std::uint64_t>(max_ahead, uses_.size())) {
  ends_.reserve(uses_.size());
  for (const UseInterval& use : uses_) ends_.emplace_back(use.end, use.shard);
  std::sort(ends_.begin(), ends_.end());
}

std::vector<std::uint64_t> PrefetchSchedule::reach(std::uint64_t slot) {
  while (begun_ < uses_.size() && uses_[begun_].begin <= slot) ++begun_;
  std::vector<std::uint64_t> ended;
  for (; ended_ < ends_.size() && ends_[ended_].first <= slot; ++ended_) {
    ended.push_back(ends_[ended_].second);
  }
  return ended;
}

std::uint64_t PrefetchSchedule::next_change() const noexcept {
  const std::uint64_t begin = begun_ < uses_.size() ? uses_[begun_].begin : kNever;
  return ended_ < ends_.size() ? std::min(begin, ends_[ended_].first) : begin;
}

const UseInterval* PrefetchSchedule::next() const noexcept {
  return decided_ < uses_.size() && decided_ < begun_ + max_ahead_ ? &uses_[decided_] : nullptr;
}

bool PrefetchSchedule::is_ahead(std::uint64_t shard) const noexcept {
  const auto num = std::min<std::uint64_t>(uses_.size() - begun_, max_ahead_);
  const auto first = uses_.begin() + static_cast<std::ptrdiff_t>(begun_);
  return std::any_of(first, first + static_cast<std::ptrdiff_t>(num),
                     [&](const UseInterval& use) { return use.shard == shard; });
}

bool PrefetchSchedule::has_end(std::uint64_t after, std::uint64_t slot) const noexcept {
  const auto next = std::upper_bound(ends_.begin(), ends_.end(), std::pair(slot, kNever));
  return next != ends_.begin() && std::prev(next)->first > after;
}

}  // namespace shardwise::detail
