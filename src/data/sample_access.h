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

/// The position of a field in the previous sample, which is usually the same in the next one.
struct FieldPlace {
  const void* shard = nullptr;
  std::size_t place = 0;
  std::uint32_t field = 0;  // its number in the shard
};

/// Internal access to a sample.
struct SampleAccess {
  /// The place of the first of `fields` that the sample has, for field(); nullopt if it has none.
  [[nodiscard]] SHARDWISE_EXPORT static std::optional<std::size_t> find(
      const Sample& sample, std::span<const std::string> fields) noexcept;
  /// Calls find() for consecutive samples, faster.
  /// @param last  default-initialised before the first call; used with one list of names.
  [[nodiscard]] SHARDWISE_EXPORT static std::optional<std::size_t> find(
      const Sample& sample, std::span<const std::string> fields, FieldPlace& last) noexcept;
  /// The index of its dataset; null if the dataset has none.
  [[nodiscard]] SHARDWISE_EXPORT static const Index* index_of(const Sample& sample) noexcept;
  /// True if its bytes are read in place; otherwise it owns a copy.
  [[nodiscard]] SHARDWISE_EXPORT static bool is_mapped(const Sample& sample) noexcept;
  /// Copies the field at `place` to `to`, which has the same size.
  /// Errors: StaleIndex if the shard was truncated; kIo if it cannot be read.
  /// Cost: O(bytes).
  SHARDWISE_EXPORT static void copy(const Sample& sample, std::size_t place,
                                    std::span<std::byte> to);
  /// Checks that the mapped file was not modified, by one stat, as Sample::copy does.
  /// @param place  of a field that was copied before.
  /// Errors: StaleIndex.
  SHARDWISE_EXPORT static void require_unchanged(const Sample& sample, std::size_t place);
  /// Calls copy(), then require_unchanged().
  SHARDWISE_EXPORT static void copy_unchanged(const Sample& sample, std::size_t place,
                                              std::span<std::byte> to);
};

}  // namespace shardwise::detail
