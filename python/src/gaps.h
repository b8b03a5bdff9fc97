#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/data/dataset.h"

namespace shardwise::python {

/// Returns the samples of a view as numbers of the index. Each number is stored as the count of
/// skipped numbers since the previous one, in groups of 7 bits, lowest first. The top bit is set in
/// all but the last group.
inline std::string gaps_of(const Dataset& view) {
  std::string bytes;
  std::uint64_t next = 0;  // the number after the last one
  for (std::uint64_t i = 0; i < view.size(); ++i) {
    const std::uint64_t number = view.number_in_index(i);
    std::uint64_t gap = number - next;
    for (; gap >= 0x80; gap >>= 7) bytes += static_cast<char>(gap | 0x80);
    bytes += static_cast<char>(gap);
    next = number + 1;
  }
  return bytes;
}

/// Returns the numbers that gaps_of() encoded.
inline std::vector<std::uint64_t> numbers_of_gaps(std::string_view gaps) {
  std::vector<std::uint64_t> numbers;
  std::uint64_t next = 0, gap = 0;
  unsigned shift = 0;
  for (const char c : gaps) {
    const auto byte = static_cast<unsigned char>(c);
    gap |= static_cast<std::uint64_t>(byte & 0x7F) << std::min(shift, 63U);
    shift += 7;
    if ((byte & 0x80) != 0) continue;
    numbers.push_back(next + gap);
    next += gap + 1;
    gap = 0;
    shift = 0;
  }
  return numbers;
}

}  // namespace shardwise::python
