#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shardwise/index/offset_table.h"

namespace shardwise {

/// Collects one shard's samples and lays them out as a segment. Methods throw CorruptShard when a
/// shard exceeds what the format can say (2^32 members or key bytes, 2^24 fields). One thread.
class SegmentBuilder {
 public:
  explicit SegmentBuilder(std::string shard) : shard_(std::move(shard)) {}

  /// Begins a sample; its members follow.
  void begin_sample(std::string_view key);
  /// Adds a member to the sample that was begun last. `field` is lower-cased (ASCII).
  /// @return  false, with nothing added, if the sample has that field already.
  bool add_member(std::string_view field, std::uint64_t data_offset, std::uint64_t size_bytes);

  std::uint32_t num_samples() const noexcept { return static_cast<std::uint32_t>(samples_.size()); }
  std::uint32_t num_members() const noexcept { return static_cast<std::uint32_t>(members_.size()); }
  bool has_open_sample() const noexcept { return !samples_.empty(); }
  std::string_view key(std::uint32_t sample) const noexcept;
  std::string_view last_key() const noexcept { return key(num_samples() - 1); }
  const MemberRecord& first_member(std::uint32_t sample) const noexcept {
    return members_[samples_[sample].first_member];
  }

  /// Takes out the samples whose flag is set.
  void drop_samples(const std::vector<bool>& drop);
  /// Takes out the last sample if it has no members.
  void drop_empty_last();

  /// The segment's bytes.
  std::string finish() const;

 private:
  std::uint32_t field_number(std::string_view field);

  std::string shard_;
  std::vector<SampleRecord> samples_;
  std::vector<MemberRecord> members_;
  std::string keys_;
  std::vector<std::string> fields_;
  std::unordered_map<std::string, std::uint32_t> field_numbers_;  // used once there are many
  std::string lower_;
};

}  // namespace shardwise
