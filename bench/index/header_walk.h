#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardwise::bench {

/// Follows the size fields of a tar's headers: the least work of any index. Returns the number of
/// members. The tar must be ustar without long names, and sizes must be octal.
inline std::uint64_t walk_headers(std::string_view tar) {
  std::uint64_t members = 0;
  for (std::size_t at = 0; at + 512 <= tar.size() && tar[at] != '\0'; ++members) {
    std::uint64_t size = 0;
    for (std::size_t i = at + 124; i < at + 135; ++i) {
      size = size << 3 | static_cast<std::uint64_t>(tar[i] - '0');
    }
    at += 512 + (size + 511) / 512 * 512;
  }
  return members;
}

}  // namespace shardwise::bench
