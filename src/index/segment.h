#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "index/offset_table.h"
#include "shardwise/index/query.h"

namespace shardwise {

/// Collects one shard's samples and lays them out as a segment. Methods throw CorruptShard when a
/// shard exceeds what the format can say (2^32 members, key bytes or value bytes, 2^24 fields).
/// One thread.
class SegmentBuilder {
 public:
  explicit SegmentBuilder(std::string shard, std::uint32_t num_columns = 0,
                          bool with_member_hashes = false)
      : shard_(std::move(shard)), columns_(num_columns), with_member_hashes_(with_member_hashes) {}

  /// Begins a sample; its members follow.
  void begin_sample(std::string_view key);
  /// Adds a member to the sample that was begun last. `field` is lower-cased (ASCII).
  /// @return  false, with nothing added, if the sample has that field already.
  bool add_member(std::string_view field, std::uint64_t data_offset, std::uint64_t size_bytes,
                  std::uint64_t content_hash = 0);
  /// Sets the metadata of the sample that was begun last; it is null where nothing is set.
  void set_value(std::uint32_t column, const MetadataValue& value);

  std::uint32_t num_samples() const noexcept { return static_cast<std::uint32_t>(samples_.size()); }
  std::uint32_t num_members() const noexcept { return static_cast<std::uint32_t>(members_.size()); }
  bool has_open_sample() const noexcept { return !samples_.empty(); }
  std::string_view key(std::uint32_t sample) const noexcept;
  std::string_view last_key() const noexcept { return key(num_samples() - 1); }

  /// Takes out the samples whose flag is set.
  void drop_samples(const std::vector<bool>& drop);
  /// Takes out the last sample if it has no members.
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
  std::vector<std::vector<Value>> columns_;  // each as long as samples_, or shorter: then null
  std::string values_;                       // the heap
  bool with_member_hashes_;
  std::vector<std::uint64_t> member_hashes_;
  std::vector<SampleRecord> samples_;
  std::vector<MemberRecord> members_;
  std::string keys_;
  std::vector<std::string> fields_;
  std::unordered_map<std::string, std::uint32_t> field_numbers_;  // used once there are many
  std::vector<std::uint32_t> last_sample_with_;  // by field, counted from 1; 0: none yet
  std::string lower_;
};

}  // namespace shardwise
