#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/open_shard.h"
#include "index/offset_table.h"
#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// Memory for the bytes of a sample, and the parts of its shard to read into this memory.
struct SampleMemory {
  /// A part of the shard that is read by one read or request. Nearby members are one run.
  struct Run {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    char* to = nullptr;
  };

  std::shared_ptr<OwnBytes> bytes;
  std::vector<Run> runs;  // sorted by offset
  std::uint64_t size_bytes = 0;
};

/// Members with a smaller gap between them are read together. The gap usually contains only
/// headers.
inline constexpr std::uint64_t kMaxMemberGap = std::uint64_t{64} * 1024;

/// Allocates memory for `members`, which are the members of `sample`.
/// @param shard_bytes  size of the shard; no SampleMemory::Run extends beyond it.
/// Errors: CorruptIndex; kIo if there is no memory.
SampleMemory make_memory(const Sample& sample, std::uint64_t shard_bytes,
                         std::span<const MemberRecord> members);

}  // namespace shardwise::detail
