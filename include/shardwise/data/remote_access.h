#pragma once

#include <atomic>
#include <memory>

#include "shardwise/base/export.h"
#include "shardwise/index/remote_shards.h"
#include "shardwise/storage/fetcher.h"
#include "shardwise/storage/shard_cache.h"

namespace shardwise {

/// What building and verifying indexes of remote shards takes: give it to BuildOptions::remote and
/// VerifyOptions::remote.
///
/// A shard is read once, from front to back, and not kept: of large members only the headers, where
/// the server gives parts, and metadata is not asked for of those.
/// @param fetchers  none: the standard ones.
/// @param keep      none; otherwise every shard is fetched whole into this cache, expanded if it is
///                  compressed, and read there.
/// @param cancel    if it becomes true, what is being read ends with Cancelled.
SHARDWISE_EXPORT std::shared_ptr<RemoteShards> make_remote_shards(
    std::shared_ptr<const Fetchers> fetchers = nullptr, std::shared_ptr<ShardCache> keep = nullptr,
    const std::atomic<bool>* cancel = nullptr);

}  // namespace shardwise
