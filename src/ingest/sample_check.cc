#include "ingest/sample_check.h"

#include <algorithm>
#include <span>

#include "base/hasher.h"
#include "shardwise/base/error.h"
#include "tar/sample_name.h"
#include "tar/tar_header.h"
#include "tar/tar_scanner.h"

namespace shardwise::detail {
namespace {

/// Returns the offset after a member's data and padding. Sizes above 4 EiB, which only a damaged
/// index has, count as 4 EiB, so that the sum does not overflow.
std::uint64_t end_of(const MemberRecord& member) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 62;
  return member.data_offset() + tar::padded(std::min(member.size_bytes, kMaxBytes));
}

}  // namespace

std::optional<std::pair<std::uint64_t, std::uint64_t>> part_of_sample(const SegmentView& segment,
                                                                      std::uint32_t local) {
  const std::span<const MemberRecord> members = segment.members(local);
  const bool is_first = members.data() == segment.members().data();
  const std::uint64_t begin = is_first || members.empty() ? 0 : end_of(*(members.data() - 1));
  std::uint64_t end = begin;
  for (const MemberRecord& member : members) {
    if (member.data_offset() < end + kTarBlockBytes) return std::nullopt;
    end = end_of(member);
  }
  return std::pair(begin, end);
}

bool holds_sample(const SegmentView& segment, std::uint32_t local, std::string_view part,
                  std::uint64_t offset, bool lenient) {
  const std::span<const MemberRecord> members = segment.members(local);
  std::size_t next = 0;
  const auto see = [&](const TarMember& member) {
    if (next == members.size()) return;
    const MemberRecord& record = members[next];
    if (offset + member.data_offset == record.data_offset() &&
        member.size_bytes == record.size_bytes &&
        is_name_of(member.name, segment.key(local), segment.field_name(record.field()))) {
      ++next;
    }
  };
  try {
    scan_tar(part, "", {.lenient = lenient}, see);
  } catch (const Error&) {
    return false;
  }
  if (next < members.size()) return false;
  if (!segment.has_member_hashes()) return true;
  auto number = static_cast<std::uint32_t>(members.data() - segment.members().data());
  for (const MemberRecord& member : members) {
    if (hash64(part.substr(member.data_offset() - offset, member.size_bytes)) !=
        segment.member_hash(number++)) {
      return false;
    }
  }
  return true;
}

}  // namespace shardwise::detail
