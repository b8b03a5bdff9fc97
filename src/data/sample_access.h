#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shardwise/base/export.h"
#include "shardwise/data/sample.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

/// Where a field was in the last sample of several: mostly it is there in the next one, too.
struct FieldPlace {
  const void* shard = nullptr;
  std::size_t place = 0;
  std::uint32_t field = 0;  // its number in the shard
};

/// What a loader does with a sample, and users do not.
struct SampleAccess {
  /// The place of the first of `fields` that the sample has, for field(); none: it has none.
  [[nodiscard]] SHARDWISE_EXPORT static std::optional<std::size_t> find(
      const Sample& sample, std::span<const std::string> fields) noexcept;
  /// The same for one sample after another; `last` begins as it is, and is of one list of names.
  [[nodiscard]] SHARDWISE_EXPORT static std::optional<std::size_t> find(
      const Sample& sample, std::span<const std::string> fields, FieldPlace& last) noexcept;
  /// The index that it was opened by; none of a data set that has none.
  [[nodiscard]] SHARDWISE_EXPORT static const Index* index_of(const Sample& sample) noexcept;
  /// Whether its bytes are read in place; otherwise it holds a copy of them.
  [[nodiscard]] SHARDWISE_EXPORT static bool is_mapped(const Sample& sample) noexcept;
  /// Copies the field at `place` to `to`, which is as large.
  /// Errors: StaleIndex if the shard was truncated; kIo if it cannot be read.
  /// Cost: the copy, and some 20 ns.
  SHARDWISE_EXPORT static void copy(const Sample& sample, std::size_t place,
                                    std::span<std::byte> to);
  /// The check of Sample::copy, that nothing was written to the mapped file: a stat. `place` is
  /// that of a field that was copied before.
  /// Errors: StaleIndex.
  SHARDWISE_EXPORT static void require_unchanged(const Sample& sample, std::size_t place);
  /// Both.
  SHARDWISE_EXPORT static void copy_unchanged(const Sample& sample, std::size_t place,
                                              std::span<std::byte> to);
};

}  // namespace shardwise::detail
