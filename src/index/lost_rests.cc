#include "index/lost_rests.h"

namespace shardwise::detail {

LostRests lost_rests(const Index& index) {
  LostRests lost;
  const std::vector<Index::SkippedMember> skipped = index.skipped(index.summary().num_skipped);
  for (std::size_t i = 0; i < skipped.size(); ++i) {  // `skipped` is sorted by shard and offset
    const bool is_last = i + 1 == skipped.size() || skipped[i + 1].shard != skipped[i].shard;
    if (!is_last || skipped[i].kind != Index::SkippedMember::Kind::kDamage) continue;
    // Count only shards whose scan stopped at the damage. If the shard has an end marker, the scan
    // continued.
    const Index::Shard shard = index.shard(skipped[i].shard);
    if (shard.end_marker) continue;
    const std::uint64_t size =
        shard.compression == Compression::kNone ? shard.size_bytes : shard.expanded_bytes;
    ++lost.num_shards;
    lost.bytes += size > skipped[i].offset ? size - skipped[i].offset : 0;
  }
  return lost;
}

}  // namespace shardwise::detail
