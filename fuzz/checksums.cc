#include "checksums.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "base/hasher.h"
#include "index/key_index.h"
#include "index/offset_table.h"
#include "index/side_tables.h"
#include "index/table_writer.h"
#include "shardwise/base/hash.h"

namespace shardwise::fuzz {
namespace {

std::uint64_t octal(std::string_view field) {
  std::uint64_t value = 0;
  for (const char c : field) {
    if (c >= '0' && c <= '7') value = value * 8 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

/// Corrects the hashes of the key section's blocks.
void fix_keys(std::string& table, TableHeader& header) {
  if (header.key_bucket_bits > 36 || header.num_samples > table.size()) return;
  const std::uint64_t num_starts = (std::uint64_t{1} << header.key_bucket_bits) + 1;
  const std::uint64_t num_bytes =
      KeyIndex::num_words(header.key_bucket_bits, header.num_samples) * sizeof(std::uint64_t);
  if (!range_fits(header.keys_offset, num_bytes, table.size())) return;
  const std::string_view keys = std::string_view(table).substr(header.keys_offset, num_bytes);
  std::string hashes;
  std::uint64_t at = 0;
  for (const std::uint64_t words : {num_starts, header.num_samples}) {
    const std::uint64_t end = at + words * sizeof(std::uint64_t);
    for (std::uint64_t block = 0; at < end; ++block) {
      const std::uint64_t size = std::min(KeyIndex::kBlockWords * sizeof(std::uint64_t), end - at);
      const std::uint64_t hash = hash64(keys.substr(at, size), block);
      hashes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
      at += size;
    }
  }
  header.keys_checksum = hash64(hashes);
  table.replace(header.keys_offset + at, hashes.size(), hashes);
}

}  // namespace

void fix_tar_headers(std::string& archive) {
  constexpr std::size_t kBlock = 512;
  constexpr std::size_t kSize = 124, kSizeLength = 12, kChecksum = 148, kChecksumLength = 8;
  constexpr std::size_t kType = 156;
  for (std::size_t at = 0; range_fits(at, kBlock, archive.size());) {
    char* header = archive.data() + at;
    at += kBlock;
    if (std::all_of(header, header + kBlock, [](char c) { return c == '\0'; })) continue;
    std::memset(header + kChecksum, ' ', kChecksumLength);
    unsigned sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) sum += static_cast<unsigned char>(header[i]);
    char digits[kChecksumLength];
    std::snprintf(digits, sizeof digits, "%06o", sum);  // with its zero byte, then a space
    std::memcpy(header + kChecksum, digits, kChecksumLength - 1);
    const bool has_data = std::strchr("123456", header[kType]) == nullptr || header[kType] == '\0';
    const std::uint64_t size = octal({header + kSize, kSizeLength});
    if (has_data && size <= archive.size() - at) at += (size + kBlock - 1) / kBlock * kBlock;
  }
}

void fix_segment(std::string& segment) {
  if (segment.size() < sizeof(SegmentHeader)) return;
  SegmentHeader header;
  std::memcpy(&header, segment.data(), sizeof header);
  header.segment_bytes = segment.size();
  std::memcpy(segment.data(), &header, sizeof header);
  const std::string_view bytes = segment;
  header.counts_checksum = hash64(bytes.substr(0, offsetof(SegmentHeader, counts_checksum)));
  header.checksum = hash64(bytes.substr(sizeof header), header.counts_checksum);
  std::memcpy(segment.data(), &header, sizeof header);
}

void fix_table(std::string& table) {
  if (table.size() < sizeof(TableHeader)) return;
  TableHeader header;
  std::memcpy(&header, table.data(), sizeof header);
  std::memcpy(header.magic, kTableMagic, sizeof header.magic);
  header.version = kIndexVersion;
  header.file_bytes = table.size();
  // The hints are between the directory and the keys. Their lengths follow from the counts.
  const std::string_view bytes = table;
  const std::uint64_t directory_bytes = (header.num_shards + 1) * sizeof(ShardEntry);
  const std::uint64_t num_hints = header.num_samples == 0 || header.hint_shift > 40
                                      ? 0
                                      : ((header.num_samples - 1) >> header.hint_shift) + 1;
  const std::uint64_t hint_bytes = (num_hints + num_hints % 2) * sizeof(std::uint32_t);
  if (range_fits(header.directory_offset, directory_bytes, bytes.size()) &&
      range_fits(header.hint_offset, hint_bytes, bytes.size())) {
    header.directory_checksum =
        hash64(bytes.substr(header.hint_offset, hint_bytes),
               hash64(bytes.substr(header.directory_offset, directory_bytes)));
  }
  fix_keys(table, header);
  header.header_checksum = table_header_checksum(header);
  std::memcpy(table.data(), &header, sizeof header);
}

void fix_side_tables(std::string& file) {
  using detail::SideHeader;
  if (file.size() < sizeof(SideHeader)) return;
  SideHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  std::memcpy(header.magic, detail::kSideMagic, sizeof header.magic);
  header.version = detail::kSideVersion;
  header.file_bytes = file.size();
  if (range_fits(header.list_offset, header.list_bytes, file.size())) {
    header.list_checksum =
        hash64(std::string_view(file).substr(header.list_offset, header.list_bytes));
  }
  header.header_checksum = detail::side_header_checksum(header);
  std::memcpy(file.data(), &header, sizeof header);
}

}  // namespace shardwise::fuzz
