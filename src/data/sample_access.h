#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "shardwise/base/export.h"
#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// What a loader does with a sample, and users do not.
struct SampleAccess {
  /// The place of the first of `fields` that the sample has, for field(); none: it has none.
  [[nodiscard]] SHARDWISE_EXPORT static std::optional<std::size_t> find(
      const Sample& sample, std::span<const std::string> fields) noexcept;
  /// Copies the field at `place` to `to`, which is as large.
  /// Errors: StaleIndex if the shard was truncated; kIo if it cannot be read.
  /// Cost: the copy, and some 20 ns.
  SHARDWISE_EXPORT static void copy(const Sample& sample, std::size_t place,
                                    std::span<std::byte> to);
};

}  // namespace shardwise::detail
