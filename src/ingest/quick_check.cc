#include "ingest/quick_check.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/counted.h"
#include "base/hasher.h"
#include "base/text.h"
#include "shardwise/base/hash.h"
#include "tar/sample_name.h"
#include "tar/tar_header.h"

namespace shardwise {
namespace {

/// Number of bytes read for headers before a member's data. Almost all members need fewer.
constexpr std::uint64_t kUsualHeaderBytes = 4096;
constexpr std::uint64_t kMaxHashedBytes = std::uint64_t{8} << 20;

bool is_special(const tar::Header& header) {
  return std::string_view("xXgLK").find(header.type()) != std::string_view::npos;
}

/// Returns the offset of the first header of an entry. The entry's last header is the last block of
/// `bytes`. Special headers (pax, GNU long names) may precede that block.
std::size_t first_header(std::string_view bytes) {
  std::size_t first = bytes.size() - tar::kBlockBytes;
  for (std::size_t at = first; at >= tar::kBlockBytes;) {
    at -= tar::kBlockBytes;
    const char* const block = bytes.data() + at;
    const tar::Header header(block);
    if (!is_special(header) || !tar::has_valid_checksum(block)) continue;
    const auto size = header.size();
    if (!size || *size < 0 || static_cast<std::uint64_t>(*size) > tar::kMaxSpecialBytes) continue;
    if (at + tar::kBlockBytes + tar::padded(static_cast<std::uint64_t>(*size)) == first) first = at;
  }
  return first;
}

/// Returns the entry whose data begins at the end of `bytes`; nullopt if `bytes` do not end with a
/// file's header.
std::optional<tar::RawEntry> entry_before(std::string_view bytes) {
  if (bytes.size() < tar::kBlockBytes) return std::nullopt;
  std::string why;
  auto entry = tar::read_raw_entry(bytes, first_header(bytes), &why);
  if (!entry || entry->data_offset != bytes.size() || entry->kind() != tar::EntryKind::kFile) {
    return std::nullopt;
  }
  return entry;
}

/// Compares individual members of a shard with the index.
class QuickCheck {
 public:
  QuickCheck(const SegmentView& segment, const ReadShard& read) : segment_(segment), read_(read) {}

  /// @param sample  number of the sample that the member belongs to.
  std::optional<std::string> difference(std::uint32_t number, std::uint32_t sample) const {
    const MemberRecord& member = segment_.members()[number];
    const std::string at = " right before offset " + std::to_string(member.data_offset());
    const std::string name =
        std::string(segment_.key(sample)) + "." + std::string(segment_.field_name(member.field()));
    std::optional<tar::RawEntry> entry;
    bool is_named = false;
    for (const std::uint64_t max_bytes : {kUsualHeaderBytes, tar::kMaxHeaderBytes}) {
      entry = entry_of(number, max_bytes);
      is_named = entry && may_be_named(*entry, number, sample);
      if (is_named) break;
    }
    if (!entry || entry->size != member.size_bytes) {
      return "no header of a member of " + counted(member.size_bytes, "byte") + at;
    }
    if (!is_named) {
      return "the header" + at + " is of " + in_quotes(entry->name) + ", not of " + in_quotes(name);
    }
    if (!segment_.has_member_hashes() || member.size_bytes > kMaxHashedBytes) return std::nullopt;
    const std::string bytes = read_(member.data_offset(), member.size_bytes);
    if (hash64(bytes) == segment_.member_hash(number)) return std::nullopt;
    return "the bytes of " + in_quotes(name) + " differ";
  }

 private:
  /// Returns the tar entry that has the member's data. Reads at most `max_bytes` bytes of headers.
  std::optional<tar::RawEntry> entry_of(std::uint32_t number, std::uint64_t max_bytes) const {
    const std::uint64_t end = segment_.members()[number].data_offset();
    std::uint64_t begin = 0;
    if (number > 0) {
      const MemberRecord& before = segment_.members()[number - 1];
      if (range_fits(before.data_offset(), before.size_bytes, end)) {
        begin = before.data_offset() + tar::padded(before.size_bytes);
      }
    }
    if (begin >= end) begin = 0;  // this member or the previous one is a resolved hard link
    begin = std::max(begin, end - std::min(end, max_bytes));
    const std::string bytes = read_(begin, end - begin);
    return bytes.size() < end - begin ? std::nullopt : entry_before(bytes);
  }

  /// True if the entry has the member's name, or if the member may be a hard link to the entry. A
  /// member is a resolved link if a member before it has data at the same offset or later.
  bool may_be_named(const tar::RawEntry& entry, std::uint32_t number, std::uint32_t sample) const {
    const MemberRecord& member = segment_.members()[number];
    const std::string_view name = std::string_view(entry.name).substr(0, entry.name.find('\0'));
    return is_name_of(name, segment_.key(sample), segment_.field_name(member.field())) ||
           std::ranges::any_of(segment_.members().first(number), [&](const MemberRecord& other) {
             return other.data_offset() >= member.data_offset();
           });
  }

  const SegmentView& segment_;
  const ReadShard& read_;
};

/// Returns the sample that contains the member.
/// REQUIRES: number < segment.num_members().
std::uint32_t sample_of(const SegmentView& segment, std::uint32_t number) {
  const auto* const member = segment.members().data() + number;
  std::uint32_t first = 0, end = segment.num_samples();
  while (end - first > 1) {
    const std::uint32_t middle = first + (end - first) / 2;
    (segment.members(middle).data() <= member ? first : end) = middle;
  }
  return first;
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
  return "the first 512 bytes differ";
}

std::optional<std::string> quick_check(const Index::Shard& row, const SegmentView& segment,
                                       const ReadShard& read) {
  if (auto difference = difference_at_start(row, read)) return difference;
  if (row.compression != Compression::kNone)
    return std::nullopt;  // the index has offsets in the expanded shard
  constexpr std::uint64_t kMaxChecks = 8;
  const QuickCheck check(segment, read);
  const std::uint64_t num_members = segment.num_members();
  const std::uint64_t num_checks = std::min(num_members, kMaxChecks);
  for (std::uint64_t i = 1; i <= num_checks; ++i) {
    const auto number = static_cast<std::uint32_t>(num_members * i / num_checks - 1);
    if (auto difference = check.difference(number, sample_of(segment, number))) return difference;
  }
  return std::nullopt;
}

}  // namespace shardwise
