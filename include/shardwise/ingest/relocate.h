#pragma once

#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {

/// A move of shards: a shard at `from`, or below it, is now at `to`, or below it under the same
/// name. Both are folders, files, or URL prefixes that end with a slash.
struct Relocation {
  std::string from;
  std::string to;
};

/// Rewrites the index at `path` for shards that moved. Only the first 512 bytes of each are read.
/// If several relocations match a shard, the one with the longest `from` applies. Shards without a
/// match are neither read nor changed. If `to` is a URL, its user, password and query are used for
/// access during this call. build_index() describes what the index stores.
///
/// A moved shard must have the size, the time (if remote: the validator) and the first 512 bytes
/// that the index states. A copy has a new time, and after a move between folder and server there
/// is no time to compare. In these cases set `options.accept_times`: the sizes and names of eight
/// members are then compared instead of the time, if the source supports ranges. A server must
/// state a version (ETag or Last-Modified), or the index must have hashes, because later reads are
/// checked against one of them. If a shard does not match, the call fails and writes nothing. Pass
/// such shards to build_index(), which scans them.
///
/// Stored sources (BuildOptions::sources) are relocated, too. They are replaced by a plain list of
/// shards if they
/// - match both moved and unmoved shards,
/// - now name shards on a server,
/// - would become another pattern (below a folder named `a{b`), or
/// - are a descriptor that names the old places.
///
/// @param options  threads, progress, remote, cancel and accept_times are used.
/// Effects: replaces the catalogue. The offset table is kept, unless another build is running.
/// Errors: StaleIndex, naming the first shard that does not match, and the number of such shards.
///   NotFound. InvalidArgument if no shard is below a `from`, or the index is a part. The errors of
///   build_index().
SHARDWISE_EXPORT BuildReport relocate_index(const std::string& path,
                                            const std::vector<Relocation>& relocations,
                                            const BuildOptions& options = {});

}  // namespace shardwise
