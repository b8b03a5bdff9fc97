#include "ingest/glance.h"

#include <algorithm>

#include "base/hasher.h"
#include "shardwise/base/hash.h"
#include "tar/tar_header.h"

namespace shardwise {
namespace {

/// True if what lies right before the member's data could be its header.
bool is_header_of(const MemberRecord& member, const ReadShard& read) {
  if (member.data_offset() < tar::kBlockBytes) return false;
  const std::string block = read(member.data_offset() - tar::kBlockBytes, tar::kBlockBytes);
  if (block.size() < tar::kBlockBytes || !tar::has_valid_checksum(block.data())) return false;
  const tar::Header header(block.data());
  const bool is_file = header.type() == '0' || header.type() == '\0' || header.type() == '7';
  // A size that a pax header gives is often 0 here.
  const auto size = header.size();
  return is_file && size && (*size == 0 || static_cast<std::uint64_t>(*size) == member.size_bytes);
}

}  // namespace

ReadShard reader_of(const File& file) {
  return [&file](std::uint64_t offset, std::size_t size) {
    std::string bytes(size, '\0');
    bytes.resize(file.read_at(offset, bytes.data(), size));
    return bytes;
  };
}

std::optional<std::string> difference_at_start(const Index::Shard& row, const ReadShard& read) {
  if (hash64(read(0, tar::kBlockBytes)) == row.first_header_hash) return std::nullopt;
  return "its first 512 bytes differ";
}

std::optional<std::string> difference_at_a_glance(const Index::Shard& row,
                                                  const SegmentView& segment,
                                                  const ReadShard& read) {
  if (auto difference = difference_at_start(row, read)) return difference;
  if (row.compression != Compression::kNone)
    return std::nullopt;  // offsets are of the expanded one
  constexpr std::uint64_t kMostGlances = 8;
  const auto members = segment.members();
  const std::uint64_t num_glances = std::min<std::uint64_t>(members.size(), kMostGlances);
  for (std::uint64_t i = 1; i <= num_glances; ++i) {
    const MemberRecord& member = members[members.size() * i / num_glances - 1];
    if (!is_header_of(member, read)) {
      return "no header of a member of " + std::to_string(member.size_bytes) +
             " bytes right before offset " + std::to_string(member.data_offset());
    }
  }
  return std::nullopt;
}

}  // namespace shardwise
