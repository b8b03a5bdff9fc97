#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/storage/shard_cache.h"

// Statistics in Prometheus' text format, version 0.0.4, for node_exporter's textfile collector.
// Every sample has the label `directory`; what one process did has the label `pid`, too, so that
// the files of several processes go together.

namespace shardwise::detail {

/// What one process did with a cache. Pure.
SHARDWISE_EXPORT std::string process_metrics(const ShardCache::Stats& stats,
                                             const ShardCache::Options& options, std::int64_t pid);

/// What lies in a cache. Pure.
/// @param entries  of whole shards; `coming` of those that are being fetched.
SHARDWISE_EXPORT std::string directory_metrics(const std::vector<ShardCache::Entry>& entries,
                                               const std::vector<ShardCache::Entry>& coming,
                                               std::string_view directory);

/// Writes a file that appears whole, by rename, as the collector wants it. Not synced.
/// Errors: InvalidArgument (a device has the name), kIo, kNoSpace.
SHARDWISE_EXPORT void write_metrics(const std::string& path, std::string_view text);

}  // namespace shardwise::detail
