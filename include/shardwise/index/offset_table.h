#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"

namespace shardwise {

// The offset table, format version 2: the hot path of an index. One file, little-endian, mapped
// read-only and shared by all processes through the page cache; nothing in it is parsed.
//
//   +--------------------+ 0
//   | TableHeader        | 128 bytes: magic, version, counts, where the sections lie, checksums
//   +--------------------+ 128
//   | segment of shard 0 | one segment a shard, each a multiple of 8 bytes, in shard order
//   | segment of shard 1 |
//   | ...                |
//   +--------------------+ directory_offset
//   | ShardEntry [S + 1] | 24 bytes a shard: where its segment lies, its first sample and member;
//   |                    | the last one is a sentinel with the totals
//   +--------------------+ hint_offset
//   | u32 [H]            | hint[i] = shard of sample i << hint_shift, so that sample -> shard is
//   |                    | O(1); H is even
//   +--------------------+ keys_offset
//   | u64 [B + 1]        | key buckets: bucket b holds entries [start[b], start[b + 1])
//   | u64 [N]            | key entries: hash tag << 40 | sample, sorted within a bucket
//   +--------------------+ file_bytes
//
// A segment does not depend on its place, so that an unchanged shard's segment is copied as it is:
//
//   +--------------------+ 0
//   | SegmentHeader      | 56 bytes: counts, sizes, checksum of what follows
//   +--------------------+ 56
//   | SampleRecord [n+1] | 8 bytes: first member and first key byte, relative to this segment;
//   |                    | the last one is a sentinel
//   | MemberRecord [m]   | 16 bytes: size, data offset in the shard, field
//   | u64 [m]            | hash64 of each member's content; only with kHasMemberHashes
//   | u64 [c][n]         | metadata, column by column: an integer, the bits of a double, or
//   |                    | offset << 32 | length of a text or blob in the value heap
//   | u32 [f + 1]        | field f's name is bytes [end[f], end[f + 1]) of the name heap
//   | u8 [c][n]          | ValueType of each metadata value
//   | field names, values, keys | bytes, not terminated; zero-padded to 8
//   +--------------------+
//
// Offsets of members in a compressed shard are in its expanded bytes. Which columns there are, and
// what they were taken from, is the catalogue's to say; it is the same in all segments.
//
// Why segments: a build appends them as scans finish in shard order, in constant memory; parts
// built on several machines join by copying; and a shard's records are checked (checksum and every
// range) when the shard is first touched, so that opening costs the same for any number of samples.
//
// A key's hash is hash64(key). Its top `key_bucket_bits` bits choose the bucket, the next 24 are
// the tag; a hit is confirmed against the key's bytes, so that a damaged entry may hide a key,
// which Index::check finds, but never gives a wrong sample.

inline constexpr char kTableMagic[8] = {'S', 'H', 'A', 'R', 'D', 'W', 'T', '\n'};
inline constexpr std::uint32_t kTableVersion = 2;
/// Member data in tar archives starts at multiples of this, so offsets are stored in these units.
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
  std::uint64_t directory_checksum;  ///< hash64 of the hint section, seeded with the directory's
  std::uint64_t segments_checksum;   ///< low half of the hash128 of all segments' checksums
  std::uint64_t keys_checksum;  ///< low half of the hash128 of the entries, plus that of the starts
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
  std::uint64_t segment_bytes;  ///< this header included
  std::uint64_t checksum;       ///< hash64 of everything after this header, seeded with the hash of
                                ///< the header's bytes before this one
};
static_assert(sizeof(SegmentHeader) == 56);

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

/// SQLite's types, which metadata values have.
enum class ValueType : std::uint8_t { kNull, kInteger, kReal, kText, kBlob };

/// A metadata value. Only the part that `type` names means anything.
struct MetadataValue {
  ValueType type = ValueType::kNull;
  std::int64_t integer = 0;
  double real = 0;
  std::string_view bytes = {};  ///< of a text or a blob

  friend bool operator==(const MetadataValue&, const MetadataValue&) = default;
};

/// One shard's records, as they lie in the table. A cheap value, valid while its table lives.
/// Immutable: any thread.
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
    return {keys_ + samples_[i].first_key_byte,
            samples_[i + 1].first_key_byte - samples_[i].first_key_byte};
  }
  /// The members of the shard's `i`-th sample, in archive order. REQUIRES: i < num_samples().
  std::span<const MemberRecord> members(std::uint32_t i) const noexcept {
    if (members_a_sample_ != 0) {  // saves a visit to the sample records
      return {members_ + std::size_t{i} * members_a_sample_, members_a_sample_};
    }
    return {members_ + samples_[i].first_member, members_ + samples_[i + 1].first_member};
  }
  /// All members of the shard, in archive order.
  std::span<const MemberRecord> members() const noexcept { return {members_, num_members_}; }
  /// hash64 of the content of member `j` of members(). REQUIRES: has_member_hashes().
  std::uint64_t member_hash(std::uint32_t j) const noexcept { return member_hashes_[j]; }
  /// The metadata of the `i`-th sample. REQUIRES: column < num_columns(), i < num_samples().
  SHARDWISE_EXPORT MetadataValue value(std::uint32_t column, std::uint32_t i) const noexcept;
  /// REQUIRES: field < num_fields().
  std::string_view field_name(std::uint32_t field) const noexcept {
    return {field_names_ + field_ends_[field], field_ends_[field + 1] - field_ends_[field]};
  }

  /// Lays a view over `bytes` (8-byte aligned) and checks all of it: checksum, counts, and every
  /// record against the segment itself.
  /// @return  nothing if the bytes are no intact segment; `why` then says what is wrong.
  /// Cost: O(members).
  SHARDWISE_EXPORT static std::optional<SegmentView> check(std::string_view bytes,
                                                           std::string* why);

  /// The key of the `i`-th sample of the segment in `bytes`, of which only what is touched is
  /// checked; nothing if it does not lie within. For look-ups that must not cost a whole segment.
  SHARDWISE_EXPORT static std::optional<std::string_view> find_key(std::string_view bytes,
                                                                   std::uint64_t i) noexcept;

  /// True if every member lies within a shard of `shard_bytes` bytes. Cost: O(members).
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
  std::uint32_t members_a_sample_ = 0;  // if all samples have as many, else 0
};

}  // namespace shardwise
