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

/// "OLD=NEW". Where that has several equals signs, the one before which there is something that
/// holds shards of `index`.
/// Errors: InvalidArgument if there is none, or more than one.
SHARDWISE_EXPORT Relocation parse_relocation(const std::string& text, const Index& index);

/// Rewrites the index at `path` for shards that moved, without reading them: of each only its first
/// 512 bytes are. Of several relocations that fit a shard, the one with the longest `from` counts;
/// shards that none fits are not looked at, and stay as they are.
///
/// A shard must be what it was: of its size, its time (a remote one: its validator) and its first
/// 512 bytes. Of copies the times are new, and of what moved between a folder and a server there is
/// none to compare: with `options.accept_times` the headers of up to eight members are looked at
/// instead, where the source gives parts of files. It must tell a version (ETag, Last-Modified), or
/// the index have hashes, for later reads are held to it. What does not fit is an error, and
/// nothing is written: the shards are to be named, and are read again.
///
/// The words that the index was built of (BuildOptions::sources) move along; if they stand for
/// shards that moved and others that did not, become those of a server, or would be read as another
/// pattern (below a folder named `a{b`), or are a descriptor that names them where they were, they
/// are forgotten, and the index names its shards one by one.
///
/// @param options  num_threads, progress, remote, cancel and accept_times count.
/// Effects: the catalogue is replaced; the offset table stays, unless another build is at work.
/// Errors: StaleIndex naming the first shard that is not what it was, and how many; NotFound;
///   InvalidArgument if no shard lies below a `from`, or the index is a part; as build_index.
SHARDWISE_EXPORT BuildReport relocate_index(const std::string& path,
                                            const std::vector<Relocation>& relocations,
                                            const BuildOptions& options = {});

}  // namespace shardwise
