#pragma once

#include <string>

#include "shardwise/base/error.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

/// True if the shard is local, and the file does not exist where the index looks for it.
/// Cost: one stat(2).
/// Threads: safe concurrently, as are the functions below.
SHARDWISE_EXPORT bool is_missing(const Index::Shard& shard);

/// Counts the missing shards of an index: "11 of 11 shards are missing". An index of more than
/// 1,000 shards is sampled evenly at 1,000 of them: "at least 870 of 100000 shards are missing".
/// Errors: CorruptIndex.
SHARDWISE_EXPORT std::string count_missing_shards(const Index& index);

/// The remedy for a missing shard of `index`: where the index looks for it, and how to give another
/// location.
SHARDWISE_EXPORT std::string how_to_find(const Index& index, const Index::Shard& shard);

/// The error for this missing shard.
/// @param note  follows the path: for example, how many shards are missing.
SHARDWISE_EXPORT NotFound missing_shard_error(const Index& index, const Index::Shard& shard,
                                              const std::string& note = {});

}  // namespace shardwise::detail

namespace shardwise {
using detail::count_missing_shards;
using detail::how_to_find;
using detail::is_missing;
using detail::missing_shard_error;
}  // namespace shardwise
