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

/// Returns whether each member is read in parts, in the form of OwnBytes::starts.
std::vector<std::size_t> marked_parts(const Sample& sample, std::span<const MemberRecord> members,
                                      const FieldsInParts& in_parts) {
  std::vector<std::size_t> starts(members.size());
  if (in_parts.names.empty()) return starts;
  const SegmentView& segment = SampleAccess::shard_of(sample).segment;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].size_bytes < in_parts.min_bytes) continue;
    const std::string_view name = segment.field_name(members[i].field());
    if (std::ranges::find(in_parts.names, name) != in_parts.names.end()) {
      starts[i] = OwnBytes::kInParts;
    }
  }
  return starts;
}

/// Joins nearby members into runs, sorted by offset, because resolved hard links may be out of
/// order. Sets `starts` to each member's offset in the concatenated runs, except of members that
/// are read in parts.
std::vector<SampleMemory::Run> runs_of(std::span<const MemberRecord> members,
                                       std::vector<std::size_t>& starts) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t i) { return starts[i] == OwnBytes::kInParts; });
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return members[a].data_offset() < members[b].data_offset();
  });
  std::vector<SampleMemory::Run> runs;
  std::uint64_t before = 0;  // total size of the preceding runs
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
                         std::span<const MemberRecord> members, const FieldsInParts& in_parts) {
  SampleMemory memory{.bytes = std::make_shared<OwnBytes>(), .runs = {}};
  memory.bytes->starts = marked_parts(sample, members, in_parts);
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

bool has_parts(const OwnBytes& bytes) noexcept {
  return std::ranges::find(bytes.starts, OwnBytes::kInParts) != bytes.starts.end();
}

std::string MemberPart::describe() const {
  return sample.describe() + ", field " + in_quotes(field) + ", offset " + std::to_string(offset);
}

}  // namespace shardwise::detail
