#include "storage/eviction.h"

namespace shardwise::detail {

bool leaves_before(const EvictionCandidate& x, const EvictionCandidate& y,
                   Replacement replacement) noexcept {
  const NextUse& a = x.next;
  const NextUse& b = y.next;
  if (replacement == Replacement::kLru) {
    if (x.last_use != y.last_use) return x.last_use < y.last_use;
  } else {
    if (a.is_in_use() != b.is_in_use()) return b.is_in_use();
    if (x.is_spared != y.is_spared) return y.is_spared;
    if (a.is_known() != b.is_known()) return b.is_known();
    if (a.is_in_use() || !a.is_known()) {
      if (x.last_use != y.last_use) return x.last_use < y.last_use;
    } else if (a.kind != b.kind) {
      return a.kind == NextUse::Kind::kNever;
    } else if (a.kind == NextUse::Kind::kAt && a.position != b.position) {
      return a.position > b.position;
    }
  }
  if (x.size_bytes != y.size_bytes) return x.size_bytes > y.size_bytes;
  return a.shard < b.shard;
}

void spare_share(const std::vector<EvictionCandidate*>& candidates, std::uint64_t share_bytes,
                 std::int64_t since) {
  std::vector<EvictionCandidate*> unknown;
  for (EvictionCandidate* const candidate : candidates) {
    if (!candidate->next.is_known() && candidate->last_use >= since) unknown.push_back(candidate);
  }
  std::sort(unknown.begin(), unknown.end(),
            [](const auto* x, const auto* y) { return leaves_before(*y, *x, Replacement::kLru); });
  for (EvictionCandidate* const candidate : unknown) {
    if (candidate->size_bytes > share_bytes) return;
    share_bytes -= candidate->size_bytes;
    candidate->is_spared = true;
  }
}

}  // namespace shardwise::detail
