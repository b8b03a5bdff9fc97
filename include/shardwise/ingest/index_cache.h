#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "shardwise/base/export.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/source_list.h"

namespace shardwise {

namespace detail {
class RemoteShards;
}  // namespace detail

// Indexes that are built at first use: who names shards where an index is wanted gets one, kept in
// a folder of the user's, and brought up to date whenever the shards changed.
//
//   <folder>/<32 hex digits>.idx          the index, and beside it its offset table
//   <folder>/<32 hex digits>.idx.lock     locked by who builds it, and says who that is; its
//                                         time is when the index was last opened, to a day
//
// The digits are a hash of what was named, in absolute paths, and of the options that decide what
// an index holds: so processes in different working folders agree on one, and a source that grows
// keeps its own. Indexes that nobody opened for 30 days are removed when another one is built. The
// folder may be removed by hand at any time when nobody builds.

/// The remote bytes that a build is about to read.
struct RemoteReading {
  std::uint64_t num_shards = 0;
  /// The size of these shards as their servers say it, or else the descriptor. Where a server gives
  /// parts, the data of large members is stepped over, and less is read.
  std::uint64_t bytes = 0;
  std::uint64_t num_unknown = 0;  ///< of the shards, those of which nobody says the size
};

struct IndexCacheOptions {
  /// The folder. Empty: $XDG_CACHE_HOME/shardwise, else $HOME/.cache/shardwise. It is made, with
  /// mode 0700; one that belongs to another user, or that others may write to, is refused.
  std::string directory = {};
  /// false: shards where an index is wanted are an error, which says what to run.
  bool build_missing = true;
  /// How indexes are built. `content` is part of what names one; `sources`, `part` and
  /// `drop_missing` are not looked at.
  BuildOptions build = {};
  /// Told before a build begins, by the thread that wants the index.
  std::function<void(const std::string& index, const RemoteReading& remote)> on_build = {};
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

/// The path of the index that `name` stands for: itself, if it names one; otherwise that of the
/// source's in the folder, built now if there is none, and brought up to date if the source
/// changed: shards came, changed or went. What a descriptor claims of its shards is held against
/// it.
///
/// One process builds an index at a time. Others that want it wait, and then find it; if the
/// builder is killed the next one goes on from where it was. Where the file system has no locks
/// nobody waits, and each builds for itself: safe, and more work. On NFS locks hold between
/// machines, unless it is mounted with `nolock` or `local_lock`.
///
/// Threads: safe concurrently; of several that want one index one builds.
/// Cost: if nothing changed, the listing of directories and 512 bytes of each shard, some us each;
///   of remote shards one request each, 16 at a time. Otherwise as build_index. Remote shards whose
///   server gives no validator cannot be known to be the same, and are read each time.
/// Errors: those of read_sources and build_index; InvalidArgument if the folder cannot be one, if
///   building is not allowed, and for index files of other programs (DALI, Energon), saying what to
///   name instead; Mismatch (a descriptor's claim).
SHARDWISE_EXPORT std::string index_for(const std::string& name,
                                       const IndexCacheOptions& options = {});

/// The remote bytes that a build of `plan` over `sources` reads. No shard is read now.
SHARDWISE_EXPORT RemoteReading remote_reading(const BuildPlan& plan, const SourceList& sources,
                                              detail::RemoteShards* remote);

}  // namespace shardwise
