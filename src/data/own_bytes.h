#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

/// Fields that the caller reads in parts, e.g. videos of which it needs a clip.
struct FieldsInParts {
  std::span<const std::string> names = {};
  std::uint64_t min_bytes = 0;  ///< smaller fields are read whole
};

/// A part of a member to read.
struct MemberPart {
  const Sample& sample;
  std::string_view field;
  std::uint64_t offset = 0;  ///< in the shard
  std::span<char> to;

  /// Returns e.g. "sample 42 ('dir/000042') in shard 'train-000000.tar', field 'mp4', offset 512".
  [[nodiscard]] std::string describe() const;
};

/// Reads parts of a sample's members that are not in its memory.
/// Threads: any.
class MemberReader {
 public:
  virtual ~MemberReader() = default;
  /// Reads one or several parts of members of one sample.
  /// Errors: those of reading the sample.
  virtual void read(std::span<const MemberPart> parts) const = 0;
  // See ByteSource.
  [[nodiscard]] virtual bool is_remote() const noexcept = 0;
  [[nodiscard]] virtual std::size_t cheap_read_bytes() const noexcept = 0;
};

/// Members with a smaller gap between them are read together. The gap usually contains only
/// headers.
inline constexpr std::uint64_t kMaxMemberGap = std::uint64_t{64} * 1024;

/// Allocates memory for `members`, which are the members of `sample`, except those `in_parts`.
/// @param shard_bytes  size of the shard; no SampleMemory::Run extends beyond it.
/// Errors: CorruptIndex; kIo if there is no memory.
SampleMemory make_memory(const Sample& sample, std::uint64_t shard_bytes,
                         std::span<const MemberRecord> members, const FieldsInParts& in_parts = {});
/// True if some member is not in the memory, so that the caller must set OwnBytes::reader.
[[nodiscard]] bool has_parts(const OwnBytes& bytes) noexcept;

}  // namespace shardwise::detail
