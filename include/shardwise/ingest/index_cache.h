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

// Indexes that are built at first use. Shards that are named where an index is needed get one: it
// is kept in a folder of the user, and updated whenever the shards changed.
//
//   <folder>/<32 hex digits>.idx          the index, and beside it its offset table
//   <folder>/<32 hex digits>.idx.lock     locked by the process that builds it, and names that
//                                         process; its time is the index's last use, to a day
//
// The digits are a hash of the named sources, in absolute paths and URLs without users, passwords
// and signatures, and of the options that decide what an index holds. So processes in different
// working folders agree on one index, and a source that grows, or is signed anew, keeps its own.
// Indexes that nobody used for 30 days are removed when another one is built. The folder may be
// removed by hand whenever no index is being built.

struct IndexCacheOptions {
  /// The folder. Empty: $XDG_CACHE_HOME/shardwise, else $HOME/.cache/shardwise. It is made, with
  /// mode 0700; one that belongs to another user, or that others may write to, is refused.
  std::string directory = {};
  /// false: shards where an index is wanted are an error, which says what to run.
  bool build_missing = true;
  /// How indexes are built. `content` is part of what names one; `sources`, `part` and
  /// `drop_missing` are not looked at.
  BuildOptions build = {};
  /// Told what the sources are, before the index of them is looked for. It keeps their URLs without
  /// what is secret: with these, Index::Lookup::urls, its shards are fetched as they are named now.
  std::function<void(const SourceList& sources)> on_sources = {};
  /// Told before a build begins, by the thread that wants the index.
  std::function<void(const std::string& index, const BuildPlan::RemoteReading& remote)> on_build =
      {};
  /// Told after it.
  std::function<void(const std::string& index, const SourceList& sources,
                     const BuildReport& report)>
      on_built = {};
  /// Told after a second, and then every ten, while another process builds: "process 1 on host".
  std::function<void(const std::string& builder, std::chrono::milliseconds waited)> on_wait = {};
};

/// True if `name` is taken for an index, false if for a source as read_sources() has them.
///
/// A file that exists is classified by its content: a directory, a tar, a compressed file, and a
/// file named like a shard or a descriptor is a source; a SQLite file is an index. Of names that do
/// not exist, lists (`-`, `@list.txt`), URLs, patterns, and names of shards and descriptors are
/// sources; all others, and every name that ends in `.idx`, are indexes: so a mistyped index is not
/// found, instead of being built.
/// Cost: reads 512 bytes.
SHARDWISE_EXPORT bool names_an_index(const std::string& name);

/// Returns the path of the index that `name` stands for. If `name` is an index, that is `name`
/// itself. Otherwise it is the source's index in the folder, which is built now if there is none,
/// and updated if shards came, changed or went. Claims of a descriptor about its shards are
/// checked.
///
/// One process builds an index at a time. Others that need it wait, and then find it; if the
/// builder is killed, the next one resumes its build. Where the file system has no locks, processes
/// do not wait, and each builds for itself: safe, but more work. On NFS, locks hold between
/// machines, unless it is mounted with `nolock` or `local_lock`.
///
/// Threads: safe concurrently; of several that need one index, one builds.
/// Cost: if nothing changed, the listing of directories and 512 bytes of each shard, some us each;
///   of remote shards one request each, 16 at a time. Otherwise as build_index. Remote shards whose
///   server gives no validator cannot be known to be the same, and are read each time.
/// Errors: those of read_sources and build_index; InvalidArgument if the folder cannot be one, or
///   if building is not allowed; Mismatch (a descriptor's claim).
SHARDWISE_EXPORT std::string index_for(const std::string& name,
                                       const IndexCacheOptions& options = {});
/// The same of several sources, in the order that numbers the samples; of one, as above.
/// Errors: InvalidArgument too, if one of several is an index.
SHARDWISE_EXPORT std::string index_for(const std::vector<std::string>& sources,
                                       const IndexCacheOptions& options = {});

/// The remote bytes that a build of `plan` over `sources` reads. No shard is read now.
SHARDWISE_EXPORT BuildPlan::RemoteReading remote_reading(const BuildPlan& plan,
                                                         const SourceList& sources,
                                                         const RemoteAccess& remote);

}  // namespace shardwise
