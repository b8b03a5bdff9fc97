#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/query.h"

namespace shardwise::detail {

// The offset table, which every access to a sample reads. It is one little-endian file, mapped
// read-only and shared by all processes through the page cache. Reading it needs no parsing.
// docs/formats/index.md specifies it and the catalogue.
//
//   TableHeader        128 bytes: magic, version, counts, sections' offsets, checksums
//   segments           one per shard, in shard order
//   ShardEntry [S + 1] each segment's offset, first sample and first member
//   hints              sample -> shard in O(1)
//   keys               key -> samples (src/index/key_index.h)
//
// A segment is a SegmentHeader, followed by arrays of one shard's records. Its bytes do not depend
// on its position, so the segment of an unchanged shard is copied verbatim.
//
// Segments have three advantages. A build appends them in shard order as scans finish, in constant
// memory. Parts that were built on several machines are joined by copying. The records of a shard
// are checked (checksum and every range) at the first use of the shard. Opening therefore costs the
// same for any number of samples.

/// The version of table and catalogue that this library writes and reads.
inline constexpr std::uint32_t kIndexVersion = 4;
inline constexpr char kTableMagic[8] = {'S', 'H', 'A', 'R', 'D', 'W', 'T', '\n'};
/// Data of tar members starts at multiples of this, so offsets are stored in these units.
inline constexpr std::uint64_t kTarBlockBytes = 512;

struct TableHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t key_bucket_bits;
  std::uint64_t file_bytes;
  std::uint64_t num_shards;
  std::uint64_t num_samples;
  std::uint64_t num_members;
  std::uint64_t directory_offset;
  std::uint64_t hint_offset;
  std::uint64_t keys_offset;
  std::uint32_t hint_shift;
  std::uint32_t reserved;
  std::uint64_t directory_checksum;  ///< hash64 of the hint section, seeded with that of the
                                     ///< directory
  std::uint64_t segments_checksum;   ///< low half of the hash128 of all segments' checksums
  std::uint64_t keys_checksum;       ///< hash64 of the checksums of the key section's blocks
  std::uint64_t padding[2];
  std::uint64_t header_checksum;  ///< hash64 of the bytes before this one
};
static_assert(sizeof(TableHeader) == 128);

struct ShardEntry {
  std::uint64_t segment_offset;
  std::uint64_t first_sample;
  std::uint64_t first_member;
};
static_assert(sizeof(ShardEntry) == 24);

struct SegmentHeader {
  std::uint32_t num_samples;
  std::uint32_t num_members;
  std::uint32_t num_fields;
  std::uint32_t num_columns;
  std::uint32_t field_bytes;
  std::uint32_t flags;  ///< kHasMemberHashes or 0
  std::uint64_t value_bytes;
  std::uint64_t key_bytes;
  std::uint64_t segment_bytes;    ///< including this header
  std::uint64_t counts_checksum;  ///< hash64 of the header's bytes before this one
  std::uint64_t checksum;  ///< hash64 of everything after this header, seeded with counts_checksum
};
static_assert(sizeof(SegmentHeader) == 64);

inline constexpr std::uint32_t kHasMemberHashes = 1;

struct SampleRecord {
  std::uint32_t first_member;
  std::uint32_t first_key_byte;
};

struct MemberRecord {
  std::uint64_t size_bytes;
  std::uint64_t block_and_field;  ///< data offset in tar blocks << 24 | field number

  std::uint64_t data_offset() const noexcept { return (block_and_field >> 24) * kTarBlockBytes; }
  std::uint32_t field() const noexcept {
    return static_cast<std::uint32_t>(block_and_field & 0xFFFFFF);
  }
};
static_assert(sizeof(SampleRecord) == 8 && sizeof(MemberRecord) == 16);

/// Metadata values are stored in the types of queries.
using MetadataValue = Query::Value;
using ValueType = Query::Value::Type;

/// The records of one shard, as stored in the table. It is cheap to copy, immutable, and valid
/// while its table lives.
/// Threads: any.
class SegmentView {
 public:
  SegmentView() = default;

  std::uint32_t num_samples() const noexcept { return num_samples_; }
  std::uint32_t num_members() const noexcept { return num_members_; }
  std::uint32_t num_fields() const noexcept { return num_fields_; }
  std::uint32_t num_columns() const noexcept { return num_columns_; }
  bool has_member_hashes() const noexcept { return member_hashes_ != nullptr; }

  /// The key of the shard's `i`-th sample. REQUIRES: i < num_samples().
  std::string_view key(std::uint32_t i) const noexcept {
    SHARDWISE_ASSERT_HOT(i < num_samples_);
    return {keys_ + samples_[i].first_key_byte,
            samples_[i + 1].first_key_byte - samples_[i].first_key_byte};
  }
  /// The members of the shard's `i`-th sample, in archive order. REQUIRES: i < num_samples().
  std::span<const MemberRecord> members(std::uint32_t i) const noexcept {
    SHARDWISE_ASSERT_HOT(i < num_samples_);
    if (members_a_sample_ != 0) {  // this saves an access to the sample records
      return {members_ + std::size_t{i} * members_a_sample_, members_a_sample_};
    }
    return {members_ + samples_[i].first_member, members_ + samples_[i + 1].first_member};
  }
  /// Returns the address of the first record that members() reads for the `i`-th sample. The caller
  /// prefetches it: if this function did, g++ would remove the call, because the function is const
  /// and has no result. REQUIRES: i < num_samples().
  const void* first_record(std::uint32_t i) const noexcept {
    if (members_a_sample_ != 0) return members_ + std::size_t{i} * members_a_sample_;
    return samples_ + i;
  }
  /// All members of the shard, in archive order.
  std::span<const MemberRecord> members() const noexcept { return {members_, num_members_}; }
  /// hash64 of the content of member `j` of members().
  /// REQUIRES: has_member_hashes(), j < num_members().
  std::uint64_t member_hash(std::uint32_t j) const noexcept {
    SHARDWISE_ASSERT_HOT(has_member_hashes() && j < num_members_);
    return member_hashes_[j];
  }
  /// The metadata of the `i`-th sample. REQUIRES: column < num_columns(), i < num_samples().
  SHARDWISE_EXPORT MetadataValue value(std::uint32_t column, std::uint32_t i) const noexcept;
  /// REQUIRES: field < num_fields().
  std::string_view field_name(std::uint32_t field) const noexcept {
    SHARDWISE_ASSERT_HOT(field < num_fields_);
    return {field_names_ + field_ends_[field], field_ends_[field + 1] - field_ends_[field]};
  }

  /// Creates a view of `bytes` (8-byte aligned) after checking them completely: the checksum, the
  /// counts, and that every record refers to data within the segment.
  /// @param why  receives the reason on failure.
  /// @return  nullopt if the bytes are not an intact segment.
  /// Cost: O(members).
  [[nodiscard]] SHARDWISE_EXPORT static std::optional<SegmentView> check(std::string_view bytes,
                                                                         std::string* why);

  /// Returns why the counts or the checksum of the segment in `bytes` are wrong; null if they are
  /// not. It does not check the records' relations, as check() does.
  /// Cost: a hash of the bytes.
  [[nodiscard]] SHARDWISE_EXPORT static const char* damage(std::string_view bytes) noexcept;

  /// Returns the key of the `i`-th sample of the segment in `bytes`, or nullopt if it is out of
  /// bounds. It is for lookups: it reads only a few bytes and checks only their bounds, not the
  /// whole segment.
  [[nodiscard]] SHARDWISE_EXPORT static std::optional<std::string_view> find_key(
      std::string_view bytes, std::uint64_t i) noexcept;

  /// True if every member is within a shard of `shard_bytes` bytes. Cost: O(members).
  SHARDWISE_EXPORT bool fits_shard(std::uint64_t shard_bytes) const noexcept;

 private:
  const SampleRecord* samples_ = nullptr;
  const MemberRecord* members_ = nullptr;
  const std::uint64_t* member_hashes_ = nullptr;
  const std::uint64_t* values_ = nullptr;
  const ValueType* value_types_ = nullptr;
  const char* value_heap_ = nullptr;
  const std::uint32_t* field_ends_ = nullptr;
  const char* field_names_ = nullptr;
  const char* keys_ = nullptr;
  std::uint32_t num_samples_ = 0;
  std::uint32_t num_members_ = 0;
  std::uint32_t num_fields_ = 0;
  std::uint32_t num_columns_ = 0;
  // Number of members of each sample if it is equal for all, else 0.
  std::uint32_t members_a_sample_ = 0;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::kHasMemberHashes;
using detail::kIndexVersion;
using detail::kTableMagic;
using detail::kTarBlockBytes;
using detail::MemberRecord;
using detail::MetadataValue;
using detail::SampleRecord;
using detail::SegmentHeader;
using detail::SegmentView;
using detail::ShardEntry;
using detail::TableHeader;
using detail::ValueType;
}  // namespace shardwise
