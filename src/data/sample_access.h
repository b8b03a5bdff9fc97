#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/byte_source.h"
#include "data/joined_sample.h"
#include "data/open_shard.h"
#include "index/offset_table.h"
#include "shardwise/base/export.h"
#include "shardwise/data/sample.h"
#include "shardwise/index/index.h"
#include "storage/shard_handle.h"

namespace shardwise::detail {

/// Internal functions of a sample.
struct SampleAccess {
  /// Returns a sample of an open shard. If the shard has no `data`, set_bytes() must follow.
  /// @param number  number of the sample in the index.
  static Sample make(ShardHandle<OpenShard>&& shard, std::uint64_t number) {
    return {std::move(shard), number};
  }
  static void set_bytes(Sample& sample, std::shared_ptr<const OwnBytes> bytes) noexcept {
    sample.own_ = std::move(bytes);
  }
  /// Sets the number of the sample in its view.
  static void set_index(Sample& sample, std::uint64_t index) noexcept { sample.index_ = index; }
  static const OpenShard& shard_of(const Sample& sample) noexcept { return *sample.shard_; }
  /// Returns the records of the sample's fields, which are part of its shard's records.
  static std::span<const MemberRecord> members_of(const Sample& sample) noexcept {
    return {sample.members_, sample.num_members_};
  }
  /// Returns the position of the first of `fields` that the sample has, for Sample::field();
  /// nullopt if it has none of them.
  [[nodiscard]] SHARDWISE_EXPORT static std::optional<std::size_t> find(
      const Sample& sample, std::span<const std::string> fields) noexcept;
  /// Returns the index of the sample's dataset; null if the dataset has no index.
  [[nodiscard]] SHARDWISE_EXPORT static const Index* index_of(const Sample& sample) noexcept;
  /// Returns the sample's value in a metadata column of its index or of a side table; nullopt if
  /// there is no such column. In a join, the value comes from the first dataset that has the
  /// column.
  /// Lifetime: the value's bytes are valid while the index is open.
  /// Errors: CorruptIndex if a side table is damaged.
  [[nodiscard]] SHARDWISE_EXPORT static std::optional<MetadataValue> metadata(
      const Sample& sample, std::string_view column);
  /// Sets the samples of joined datasets; null removes them.
  static void set_joined(Sample& sample, std::unique_ptr<JoinedSample> joined) noexcept;
  /// Returns the list of samples of joined datasets; null if no dataset is joined.
  [[nodiscard]] static JoinedSample* joined(const Sample& sample) noexcept {
    return sample.joined_;
  }
  /// Returns the bytes of the field at `place`, to read parts of them; null if the sample has them
  /// in memory. Lifetime: `sample` must outlive the result.
  [[nodiscard]] SHARDWISE_EXPORT static std::unique_ptr<ByteSource> open_field(const Sample& sample,
                                                                               std::size_t place);
  /// Returns the size of the sample's own members, except those that are read in parts.
  [[nodiscard]] static std::uint64_t bytes_in_memory(const Sample& sample) noexcept;
  /// Copies the field at `place` to `to`. REQUIRES: `to` has the field's size.
  /// Errors: StaleIndex if the shard was truncated; kIo if it cannot be read.
  /// Cost: O(bytes).
  SHARDWISE_EXPORT static void copy(const Sample& sample, std::size_t place,
                                    std::span<std::byte> to);
  /// Checks that the mapped file was not modified, with one call of stat, as Sample::copy does.
  /// @param place  position of a field that was copied before.
  /// Errors: StaleIndex.
  SHARDWISE_EXPORT static void require_unchanged(const Sample& sample, std::size_t place);
  /// Calls copy(), then require_unchanged().
  SHARDWISE_EXPORT static void copy_unchanged(const Sample& sample, std::size_t place,
                                              std::span<std::byte> to);
};

}  // namespace shardwise::detail
