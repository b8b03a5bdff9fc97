#pragma once

#include <string>

#include "shardwise/base/error.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

/// True if the shard is a local one, and no file is where the index looks for it.
/// Cost: one stat(2). Threads: this and what follows, safe concurrently.
SHARDWISE_EXPORT bool is_missing(const Index::Shard& shard);

/// "11 of 11 shards are missing", of an index; where it has more than 1,000, that many of them are
/// looked at, spread evenly: "at least 870 of 100000 shards are missing".
/// Errors: CorruptIndex.
SHARDWISE_EXPORT std::string count_missing_shards(const Index& index);

/// Advice for where this shard of `index` is missing: where the index looks for it, and how to say
/// where it is.
SHARDWISE_EXPORT std::string how_to_find(const Index& index, const Index::Shard& shard);

/// The error about this missing shard. `note` is put behind the path: for example, how many shards
/// are missing.
SHARDWISE_EXPORT NotFound missing_shard_error(const Index& index, const Index::Shard& shard,
                                              const std::string& note = {});

}  // namespace shardwise::detail

namespace shardwise {
using detail::count_missing_shards;
using detail::how_to_find;
using detail::is_missing;
using detail::missing_shard_error;
}  // namespace shardwise
