#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

namespace shardwise::detail {

/// A set of byte positions of a file, stored as half-open ranges that do not touch.
/// Threads: one.
/// Cost: O(log(number of ranges)) per call.
class ByteRanges {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
    for (; at != ranges_.end() && at->first <= end; at = ranges_.erase(at)) {
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
    }
    ranges_.emplace(begin, end);
  }
  void remove(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second > begin) --at;
    while (at != ranges_.end() && at->first < end) {
      const auto [first, last] = *at;
      at = ranges_.erase(at);
      if (first < begin) ranges_.emplace(first, begin);
      if (last > end) ranges_.emplace(end, last);
    }
  }

  bool empty() const noexcept { return ranges_.empty(); }
  /// Returns the range that contains the byte; nullopt if the byte is not in the set.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> find(std::uint64_t byte) const {
    const auto at = ranges_.upper_bound(byte);
    if (at == ranges_.begin() || std::prev(at)->second <= byte) return std::nullopt;
    return *std::prev(at);
  }
  /// REQUIRES: !empty().
  std::pair<std::uint64_t, std::uint64_t> first() const { return *ranges_.begin(); }
  /// Returns the first byte at or after `begin` that is not in the set.
  std::uint64_t first_missing(std::uint64_t begin) const {
    const auto found = find(begin);
    return found ? found->second : begin;
  }
  bool contains(std::uint64_t begin, std::uint64_t end) const {
    return first_missing(begin) >= end;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // end of each range, by its begin
};

}  // namespace shardwise::detail
