#pragma once

#include <cstdint>
#include <optional>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// The rule by which a shard leaves a full cache. Under both, no shard leaves that is in use.
enum class Replacement : std::uint8_t {
  kLru,      ///< the one whose latest use began longest ago
  kNextUse,  ///< the one that is needed again last, or never
};

/// A cached shard that is not in use.
struct EvictionCandidate {
  std::uint64_t shard = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t last_use = 0;             ///< the slot where its latest use began
  std::optional<std::uint64_t> next_use;  ///< the slot where it is needed again; nothing: never
};

/// True if `x` leaves before `y`. For a pair of different shards either this or the reverse is
/// true: if their uses do not decide, the larger one leaves first, then the one of lower number.
SHARDWISE_EXPORT bool leaves_before(const EvictionCandidate& x, const EvictionCandidate& y,
                                    Replacement replacement) noexcept;

}  // namespace shardwise::detail

namespace shardwise {
using detail::EvictionCandidate;
using detail::leaves_before;
using detail::Replacement;
}  // namespace shardwise
