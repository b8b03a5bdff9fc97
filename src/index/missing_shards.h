#pragma once

#include <string>

#include "shardwise/base/error.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

/// True if the shard is local, and the file does not exist where the index looks for it.
/// Cost: one stat(2).
/// Threads: all functions of this file are safe concurrently.
SHARDWISE_EXPORT bool is_missing(const Index::Shard& shard);

/// Returns a text with the number of missing shards, e.g. "11 of 11 shards are missing". If an
/// index has more than 1,000 shards, 1,000 evenly spread shards are checked: "at least 870 of
/// 100000 shards are missing".
/// Errors: CorruptIndex.
SHARDWISE_EXPORT std::string count_missing_shards(const Index& index);

/// Returns the remedy for a missing shard: where the index looks for the shard, and how to specify
/// another location.
SHARDWISE_EXPORT std::string how_to_find(const Index& index, const Index::Shard& shard);

/// Returns the error for a missing shard.
/// @param note  text after the path, e.g. the number of missing shards.
SHARDWISE_EXPORT NotFound missing_shard_error(const Index& index, const Index::Shard& shard,
                                              const std::string& note = {});

}  // namespace shardwise::detail

namespace shardwise {
using detail::count_missing_shards;
using detail::how_to_find;
using detail::is_missing;
using detail::missing_shard_error;
}  // namespace shardwise
