#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/remote_access.h"
#include "shardwise/ingest/source_list.h"

namespace shardwise {

// A cache of indexes that are built at first use. If shards are named where an index is expected,
// their index is built in a folder of the user, and updated when the shards change.
//
//   <folder>/<32 hex digits>.idx          the index, next to its offset table
//   <folder>/<32 hex digits>.idx.lock     locked by the process that builds the index, and contains
//                                         its name; its time is the last use, to the day
//
// The digits are a hash of the sources and of the options that determine the index's content.
// Sources enter the hash as absolute paths and URLs without users, passwords and signatures.
// Processes in different working directories therefore share one index. A source that grows, or is
// signed anew, keeps its index.
//
// Indexes that were not used for 30 days are removed when another one is built. You may delete the
// folder whenever no index is being built.

struct IndexCacheOptions {
  /// The folder. Empty means $XDG_CACHE_HOME/shardwise, else $HOME/.cache/shardwise. It is created
  /// with mode 0700. A folder that belongs to another user, or is writable by others, is refused.
  std::string directory = {};
  /// If false, naming shards instead of an index is an error, which states the command to run.
  bool build_missing = true;
  /// How indexes are built. `content` is part of an index's identity. `sources`, `part` and
  /// `drop_missing` are ignored.
  BuildOptions build = {};
  /// Called with the expanded sources, before their index is searched. The index stores URLs
  /// without secrets. Pass these sources as Index::Lookup::urls to fetch shards by the URLs given
  /// now.
  std::function<void(const SourceList& sources)> on_sources = {};
  /// Called before a build begins, on the thread that requested the index.
  std::function<void(const std::string& index, const BuildPlan::RemoteReading& remote)> on_build =
      {};
  /// Called after the build.
  std::function<void(const std::string& index, const SourceList& sources,
                     const BuildReport& report)>
      on_built = {};
  /// Called after one second, then every ten, while another process builds, e.g. "process 1 on
  /// host".
  std::function<void(const std::string& builder, std::chrono::milliseconds waited)> on_wait = {};
};

/// True if `name` is treated as an index, false if as a source for read_sources().
///
/// An existing file is classified by its content. SQLite files are indexes. Directories, tars,
/// compressed files, and files named like a shard or descriptor are sources.
///
/// A name that does not exist is a source if it is a list (`-`, `@list.txt`), a URL, a pattern, or
/// looks like a shard or descriptor. All others, and every name that ends in `.idx`, are indexes. A
/// misspelt index is therefore reported as missing instead of being built.
/// Cost: reads 512 bytes.
SHARDWISE_EXPORT bool names_an_index(const std::string& name);

/// Returns the path of the index for `name`. If `name` is an index, it is returned as it is.
/// Otherwise the result is the source's index in the folder. It is built now if it is missing, and
/// updated if shards were added, changed or removed. Claims of a descriptor about its shards are
/// checked.
///
/// One process builds an index at a time, and others that need it wait. If the builder is killed,
/// the next process resumes its build. If the file system has no locks, each process builds for
/// itself, which is safe but more work. On NFS, locks work between machines, unless it is mounted
/// with `nolock` or `local_lock`.
///
/// Threads: safe concurrently; if several threads need one index, one of them builds.
/// Cost: if nothing changed, listing directories and reading 512 bytes per local shard, or one
///   request per remote shard, 16 at a time. Otherwise see build_index(). If a server gives no
///   validator, its shards are read each time.
/// Errors: those of read_sources() and build_index(). InvalidArgument if the folder is refused, or
///   building is not allowed. Mismatch for a wrong claim of a descriptor.
SHARDWISE_EXPORT std::string index_for(const std::string& name,
                                       const IndexCacheOptions& options = {});
/// Returns the index of several sources, in the order that numbers the samples. A single source is
/// treated as above.
/// Errors: also InvalidArgument if one of several sources is an index.
SHARDWISE_EXPORT std::string index_for(const std::vector<std::string>& sources,
                                       const IndexCacheOptions& options = {});

/// Returns the remote bytes that the build of `plan` over `sources` will read. It reads no shard.
SHARDWISE_EXPORT BuildPlan::RemoteReading remote_reading(const BuildPlan& plan,
                                                         const SourceList& sources,
                                                         const RemoteAccess& remote);

}  // namespace shardwise
