#include "storage/replacement.h"

namespace shardwise::detail {

bool leaves_before(const EvictionCandidate& x, const EvictionCandidate& y,
                   Replacement replacement) noexcept {
  if (replacement == Replacement::kLru) {
    if (x.last_use != y.last_use) return x.last_use < y.last_use;
  } else if (x.next_use != y.next_use) {
    if (!x.next_use || !y.next_use) return !x.next_use;
    return *x.next_use > *y.next_use;
  }
  if (x.size_bytes != y.size_bytes) return x.size_bytes > y.size_bytes;
  return x.shard < y.shard;
}

}  // namespace shardwise::detail
