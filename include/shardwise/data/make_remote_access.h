#pragma once

#include <memory>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/ingest/remote_access.h"
#include "shardwise/storage/fetcher.h"
#include "shardwise/storage/shard_cache.h"

namespace shardwise {

/// Makes the access to remote shards for building and verifying indexes: BuildOptions::remote and
/// VerifyOptions::remote.
///
/// A shard is read once, from front to back, and not stored. If the server supports ranges, the
/// data of members above 1 MiB is skipped, unless hashes of all content are required.
///
/// @param fetchers  shared by the result. Null means a default Fetchers object.
/// @param keep      if not null, each shard is fetched completely into this cache, expanded if it
///   is compressed, and read there. The result shares ownership of it.
/// @param cancel    makes reads throw Cancelled.
/// Threads: the result is safe concurrently.
/// Errors: calls through the result throw what Fetchers throw; with `keep`, also the errors of a
///   cache miss, see ShardCache.
SHARDWISE_EXPORT RemoteAccess make_remote_access(std::shared_ptr<const Fetchers> fetchers = nullptr,
                                                 std::shared_ptr<ShardCache> keep = nullptr,
                                                 const CancelToken& cancel = {});

}  // namespace shardwise
