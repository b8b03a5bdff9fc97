#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace shardwise {

static_assert(std::endian::native == std::endian::little,
              "the offset table is mapped as it is, in little-endian order");

inline std::uint32_t load_le32(const char* p) noexcept {
  std::uint32_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
inline std::uint64_t load_le64(const char* p) noexcept {
  std::uint64_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
inline void store_le32(char* p, std::uint32_t value) noexcept {
  std::memcpy(p, &value, sizeof value);
}
inline void store_le64(char* p, std::uint64_t value) noexcept {
  std::memcpy(p, &value, sizeof value);
}

/// True if [offset, offset + size) lies within [0, total). Cannot overflow.
constexpr bool range_fits(std::uint64_t offset, std::uint64_t size, std::uint64_t total) noexcept {
  return offset <= total && size <= total - offset;
}

}  // namespace shardwise
