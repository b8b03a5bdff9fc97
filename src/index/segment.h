#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "index/offset_table.h"
#include "shardwise/index/query.h"

namespace shardwise {

/// Collects one shard's samples, and lays them out as a segment.
/// Threads: one.
/// Errors: CorruptShard if a shard exceeds the format (2^32 members, key bytes or value bytes, 2^24
///   fields).
class SegmentBuilder {
 public:
  explicit SegmentBuilder(std::string shard, std::uint32_t num_columns = 0,
                          bool with_member_hashes = false)
      : shard_(std::move(shard)), columns_(num_columns), with_member_hashes_(with_member_hashes) {}

  /// Begins a sample. Then call add_member() for its members.
  void begin_sample(std::string_view key);
  /// Adds a member to the latest sample.
  /// @param field  converted to lower case (ASCII).
  /// @return  false if the sample already has this field; the member is then not added.
  bool add_member(std::string_view field, std::uint64_t data_offset, std::uint64_t size_bytes,
                  std::uint64_t content_hash = 0);
  /// Sets a metadata value of the latest sample; the default is null.
  void set_value(std::uint32_t column, const MetadataValue& value);

  std::uint32_t num_samples() const noexcept { return static_cast<std::uint32_t>(samples_.size()); }
  std::uint32_t num_members() const noexcept { return static_cast<std::uint32_t>(members_.size()); }
  bool has_open_sample() const noexcept { return !samples_.empty(); }
  std::string_view key(std::uint32_t sample) const noexcept;
  std::string_view last_key() const noexcept { return key(num_samples() - 1); }

  /// Removes the samples whose flag is set.
  void drop_samples(const std::vector<bool>& drop);
  /// Removes the last sample if it has no members.
  void drop_empty_last();

  /// The segment's bytes.
  std::string finish() const;

 private:
  struct Value {
    ValueType type = ValueType::kNull;
    std::uint64_t bits = 0;
  };

  std::uint32_t field_number(std::string_view field);

  std::string shard_;
  // For each column, the values by sample. Samples after the end of the vector have the value null.
  std::vector<std::vector<Value>> columns_;
  std::string values_;  // the bytes of texts and blobs
  bool with_member_hashes_;
  std::vector<std::uint64_t> member_hashes_;
  std::vector<SampleRecord> samples_;
  std::vector<MemberRecord> members_;
  std::string keys_;
  std::vector<std::string> fields_;
  // Used only if there are many fields.
  std::unordered_map<std::string, std::uint32_t> field_numbers_;
  // For each field: 1 + the latest sample that has it, or 0.
  std::vector<std::uint32_t> last_sample_with_;
  std::string lower_;
};

}  // namespace shardwise
