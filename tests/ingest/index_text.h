#pragma once

#include <cstdint>
#include <string>

#include "index/offset_table.h"
#include "index/segment_of.h"
#include "shardwise/index/index.h"

namespace shardwise::test {

/// Validates the bytes of an index. Returns all of its content as one text.
inline std::string index_text(const std::string& path) {
  const auto index = Index::open(path);
  index->validate();
  std::string text = to_string(index->fingerprint());
  for (std::uint64_t number = 0; number < index->num_shards(); ++number) {
    const Index::Shard shard = index->shard(number);
    text += "\n" + shard.path + " " + std::to_string(shard.size_bytes) + " " +
            std::to_string(shard.mtime_ns) + " " + std::to_string(shard.first_sample);
    const SegmentView segment = segment_of(*index, number);
    for (std::uint32_t i = 0; i < segment.num_samples(); ++i) {
      const std::string key(segment.key(i));
      text += "\n" + key + " " + std::to_string(index->find(key).value_or(UINT64_MAX));
      for (const MemberRecord& member : segment.members(i)) {
        text += " " + std::string(segment.field_name(member.field())) + " " +
                std::to_string(member.data_offset()) + "+" + std::to_string(member.size_bytes);
      }
    }
  }
  return text;
}

}  // namespace shardwise::test
