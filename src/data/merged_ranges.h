#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shardwise::detail {

/// The first `count` of several ranges as one.
struct MergedRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::size_t count = 0;
};

/// Merges as many of the first ranges as possible.
/// @param sorted   ranges with the members `begin` and `end`, sorted by `begin`; not empty.
/// @param max_gap  ranges with a larger gap are not merged.
/// @param max_bytes  the largest merged range; a single range may be larger.
template <class Range>
MergedRange merge_ranges(std::span<const Range> sorted, std::uint64_t max_gap,
                         std::uint64_t max_bytes) {
  MergedRange merged{sorted.front().begin, sorted.front().end, 1};
  for (const Range& next : sorted.subspan(1)) {
    const std::uint64_t end = std::max(merged.end, next.end);
    if (next.begin > merged.end && next.begin - merged.end > max_gap) break;
    if (end - merged.begin > max_bytes && end > merged.end) break;
    merged.end = end;
    ++merged.count;
  }
  return merged;
}

}  // namespace shardwise::detail
