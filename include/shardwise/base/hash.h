#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "shardwise/base/export.h"

namespace shardwise {

/// A 128-bit hash value. The hash is not cryptographic: it detects accidental damage, but not
/// deliberate changes.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

/// Returns 32 lower-case hexadecimal digits, most significant first.
SHARDWISE_EXPORT std::string to_string(const Hash128& hash);

}  // namespace shardwise
