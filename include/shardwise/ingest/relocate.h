#pragma once

#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {

/// A move: what lay at `from`, or below it, is now at `to`, or below it, under the same names. Both
/// are folders, files, or the beginnings of URLs, up to a slash.
struct Relocation {
  std::string from;
  std::string to;
};

/// Rewrites the index at `path` for shards that moved. It reads only the first 512 bytes of each.
/// If several relocations fit a shard, the one with the longest `from` counts. Shards that no
/// relocation fits are not looked at, and stay as they are. User, password and query of a URL `to`
/// are for looking at the shards now; the index keeps of them what build_index() does.
///
/// A moved shard must have the size, the time (a remote one: the validator) and the first 512 bytes
/// that the index has. A copy has a new time, and a shard that moved between a folder and a server
/// has no time to compare. With `options.accept_times` sizes and names of eight members are
/// compared instead, if the source gives parts of files. A server must name a version (ETag or
/// Last-Modified), or the index have hashes, because later reads are compared with it. A shard that
/// does not fit is an error, and nothing is written; give such shards to build_index(), which reads
/// them again.
///
/// The words that the index was built of (BuildOptions::sources) move along. They are dropped, so
/// that the index names its shards one by one, if they
///   - stand for shards that moved and for others that did not,
///   - now name shards on a server,
///   - would be read as another pattern (below a folder named `a{b`), or
///   - are a descriptor that names the shards where they were.
///
/// @param options  threads, progress, remote, cancel and accept_times count.
/// Effects: the catalogue is replaced; the offset table stays, unless another build is at work.
/// Errors: StaleIndex naming the first shard that is not what it was, and how many; NotFound;
///   InvalidArgument if no shard lies below a `from`, or the index is a part; as build_index.
SHARDWISE_EXPORT BuildReport relocate_index(const std::string& path,
                                            const std::vector<Relocation>& relocations,
                                            const BuildOptions& options = {});

}  // namespace shardwise
