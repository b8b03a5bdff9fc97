#include "shardwise/order/skip_list.h"

#include <algorithm>
#include <iterator>

#include "order/arithmetic.h"
#include "shardwise/base/error.h"
#include "shardwise/order/order.h"

namespace shardwise {

namespace {

/// Returns `reason`. If it is too long, returns its beginning, cut after a word or a part of a
/// path, followed by dots.
std::string shortened(std::string_view reason) {
  constexpr std::string_view kDots = "...";
  if (reason.size() <= SkipList::kMaxReason) return std::string(reason);
  std::string_view kept = reason.substr(0, SkipList::kMaxReason - kDots.size());
  const std::size_t end = kept.find_last_of(" /");
  const auto is_inside = [&] {
    return (static_cast<unsigned char>(reason[kept.size()]) & 0xC0) == 0x80;
  };
  if (end != std::string_view::npos && end > kept.size() / 2) {
    kept = kept.substr(0, end);
  } else {
    // Do not cut within a UTF-8 character.
    while (!kept.empty() && is_inside()) kept.remove_suffix(1);
  }
  return std::string(kept) += kDots;
}

/// Returns `text` as one line: control characters become spaces.
std::string one_line(std::string_view reason) {
  std::string text = shortened(reason);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c >= 0 && c < 0x20; }, ' ');
  return text;
}

}  // namespace

void SkipList::add_sample(std::uint64_t sample, std::string_view reason, SkipList::Point from) {
  const auto [at, added] = samples_.try_emplace(sample, Entry{from, one_line(reason)});
  if (added || at->second.from <= from) return;
  at->second = {from, one_line(reason)};
}

void SkipList::add_positions(std::uint64_t epoch, std::uint64_t begin, std::uint64_t end) {
  if (begin > end) {
    throw InvalidArgument(
        "positions [" + std::to_string(begin) + ", " + std::to_string(end) + ") cannot be left out",
        {}, "give the first position, and the position after the last");
  }
  if (begin == end) return;
  // Merges ranges that overlap the new range or are adjacent to it.
  auto at = ranges_.upper_bound({epoch, begin});
  if (at != ranges_.begin()) {
    const auto before = std::prev(at);
    if (before->first.first == epoch && before->second >= begin) at = before;
  }
  while (at != ranges_.end() && at->first.first == epoch && at->first.second <= end) {
    begin = std::min(begin, at->first.second);
    end = std::max(end, at->second);
    at = ranges_.erase(at);
  }
  ranges_.emplace_hint(at, std::pair(epoch, begin), end);
}

void SkipList::add_steps(std::uint64_t epoch, std::uint64_t first, std::uint64_t last,
                         std::uint64_t world_size, std::uint64_t batch_size) {
  using detail::uint128;
  const uint128 per_step = static_cast<uint128>(world_size) * batch_size;
  const auto position = [&](std::uint64_t step) {
    if (per_step != 0 && step > kMaxSamples / per_step) return kMaxSamples;
    return static_cast<std::uint64_t>(step * per_step);
  };
  add_positions(epoch, position(first), position(last));
}

void SkipList::merge(const SkipList& other) {
  if (&other == this) return;
  for (const auto& [sample, entry] : other.samples_) add_sample(sample, entry.reason, entry.from);
  for (const auto& [begin, end] : other.ranges_) add_positions(begin.first, begin.second, end);
}

void SkipList::merge_from(const SkipList& other, SkipList::Point point) {
  if (&other == this) return;
  for (const auto& [sample, entry] : other.samples_) {
    add_sample(sample, entry.reason, std::max(entry.from, point));
  }
  for (const auto& [begin, end] : other.ranges_) {
    const auto [epoch, first] = begin;
    if (epoch < point.epoch) continue;
    const std::uint64_t from = epoch == point.epoch ? std::max(first, point.position) : first;
    if (from < end) add_positions(epoch, from, end);
  }
}

}  // namespace shardwise
