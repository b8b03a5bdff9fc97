#pragma once

#include <memory>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/ingest/remote_access.h"
#include "shardwise/storage/fetcher.h"
#include "shardwise/storage/shard_cache.h"

namespace shardwise {

/// Makes the access to remote shards that building and verifying indexes needs: for
/// BuildOptions::remote and VerifyOptions::remote.
///
/// A shard is read once, from front to back, and not kept. Where the server gives parts, the data
/// of members above 1 MiB is stepped over, unless hashes of all content are wanted.
///
/// @param fetchers  none: the standard ones. What is returned shares them.
/// @param keep      none; otherwise every shard is fetched whole into this cache, expanded if it is
///                  compressed, and read there. Shared, too.
/// @param cancel    ends what is being read with Cancelled.
/// Threads: what is returned may be used by any at once.
/// Errors of its calls: as Fetchers; with `keep` as ShardCache::get.
SHARDWISE_EXPORT RemoteAccess make_remote_access(std::shared_ptr<const Fetchers> fetchers = nullptr,
                                                 std::shared_ptr<ShardCache> keep = nullptr,
                                                 const CancelToken& cancel = {});

}  // namespace shardwise
