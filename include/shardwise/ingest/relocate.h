#pragma once

#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {

/// A move of everything at or below `from` to `to`, under the same names. Both are folders, files,
/// or beginnings of URLs up to a slash.
struct Relocation {
  std::string from;
  std::string to;
};

/// Rewrites the index at `path` for shards that moved. Only the first 512 bytes of each are read.
/// If several relocations match a shard, the one with the longest `from` applies. Shards without a
/// match are neither read nor changed. User, password and query of a URL `to` are used for access
/// now; for what the index stores, see build_index().
///
/// A moved shard must have the size, the time (if remote: the validator) and the first 512 bytes of
/// the index. A copy has a new time, and a move between folder and server leaves no time to
/// compare. With `options.accept_times`, sizes and names of eight members are compared instead, if
/// the source supports ranges. A server must state a version (ETag or Last-Modified), or the index
/// must have hashes, because later reads are checked against them. If a shard does not match, the
/// call fails and writes nothing. Pass such shards to build_index(), which scans them.
///
/// Stored sources (BuildOptions::sources) are relocated, too. They are replaced by a plain list of
/// shards if they
/// - match both moved and unmoved shards,
/// - now name shards on a server,
/// - would become another pattern (below a folder named `a{b`), or
/// - are a descriptor that names the old places.
///
/// @param options  threads, progress, remote, cancel and accept_times are used.
/// Effects: replaces the catalogue. The offset table stays, unless another build is running.
/// Errors: StaleIndex, naming the first shard that does not match and their number. NotFound.
///   InvalidArgument if no shard is below a `from`, or the index is a part. The errors of
///   build_index().
SHARDWISE_EXPORT BuildReport relocate_index(const std::string& path,
                                            const std::vector<Relocation>& relocations,
                                            const BuildOptions& options = {});

}  // namespace shardwise
