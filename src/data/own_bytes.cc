#include "data/own_bytes.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <numeric>

#include "base/error_types.h"
#include "base/spelling.h"
#include "base/text.h"
#include "data/sample_access.h"
#include "index/remedies.h"

namespace shardwise::detail {
namespace {

std::unique_ptr<char[]> allocate(std::uint64_t size, const Sample& sample) {
  try {
    return std::make_unique_for_overwrite<char[]>(size);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kIo, "cannot allocate the " + human_bytes(size) + " of a sample",
                sample.describe(),
                "give the process more memory, or map the shards (" +
                    spelled("Dataset::Access::kMap") + ")");
  }
}

/// Joins nearby members into runs, sorted by offset, because resolved hard links may be out of
/// order. Sets `starts` to each member's offset in the concatenated runs.
std::vector<SampleMemory::Run> runs_of(std::span<const MemberRecord> members,
                                       std::vector<std::size_t>& starts) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return members[a].data_offset() < members[b].data_offset();
  });
  std::vector<SampleMemory::Run> runs;
  std::uint64_t before = 0;  // total size of the preceding runs
  starts.resize(members.size());
  for (const std::size_t i : order) {
    const std::uint64_t offset = members[i].data_offset();
    const bool joins =
        !runs.empty() && offset - runs.back().offset <= runs.back().size + kMaxMemberGap;
    if (!joins) {
      if (!runs.empty()) before += runs.back().size;
      runs.push_back({.offset = offset});
    }
    SampleMemory::Run& run = runs.back();
    starts[i] = before + (offset - run.offset);
    run.size = std::max(run.size, offset - run.offset + members[i].size_bytes);
  }
  return runs;
}

}  // namespace

SampleMemory make_memory(const Sample& sample, std::uint64_t shard_bytes,
                         std::span<const MemberRecord> members) {
  SampleMemory memory{.bytes = std::make_shared<OwnBytes>(), .runs = {}};
  memory.runs = runs_of(members, memory.bytes->starts);
  for (const SampleMemory::Run& run : memory.runs) {
    if (run.size > shard_bytes - memory.size_bytes) {
      const Index* const index = SampleAccess::index_of(sample);
      throw CorruptIndex("the index is damaged", sample.describe() + " (its members overlap)",
                         rebuild_remedy(index == nullptr ? "" : index->path()));
    }
    memory.size_bytes += run.size;
  }
  memory.bytes->bytes = allocate(memory.size_bytes, sample);
  memory.bytes->at = memory.bytes->bytes.get();
  char* to = memory.bytes->bytes.get();
  for (SampleMemory::Run& run : memory.runs) {
    run.to = to;
    to += run.size;
  }
  return memory;
}

}  // namespace shardwise::detail
