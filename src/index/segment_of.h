#pragma once

#include <cstdint>
#include <string_view>

#include "index/offset_table.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise {
namespace detail {

/// Returns the records of a shard. Each call checks all of them.
/// Errors: OutOfRange; CorruptIndex.
/// Cost: O(members of the shard), so call it once and keep the view.
SHARDWISE_EXPORT SegmentView segment_of(const Index& index, std::uint64_t shard);

/// Does the same as Index::shard_of(), faster, for loops over many samples. Valid while the index
/// lives.
struct ShardFinder {
  const std::uint32_t* hints;  // the shard of every 2^hint_shift-th sample
  const ShardEntry* directory;
  std::uint32_t hint_shift;

  /// REQUIRES: sample < Index::size().
  [[nodiscard]] std::uint64_t shard_of(std::uint64_t sample) const noexcept {
    std::uint64_t shard = hints[sample >> hint_shift];
    while (directory[shard + 1].first_sample <= sample) ++shard;
    return shard;
  }
};
/// Returns the key of a sample. It checks only the bounds of what it reads.
/// REQUIRES: sample < index.size(). Errors: CorruptIndex.
SHARDWISE_EXPORT std::string_view key_of_sample(const Index& index, std::uint64_t sample);
SHARDWISE_EXPORT ShardFinder shard_finder_of(const Index& index) noexcept;

}  // namespace detail

using detail::segment_of;

}  // namespace shardwise
