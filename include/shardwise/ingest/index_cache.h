#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/ingest/index_builder.h"
#include "shardwise/ingest/remote_access.h"
#include "shardwise/ingest/source_list.h"

namespace shardwise {

// A cache of indexes that are built at first use. Where an index is expected, users may name shards
// instead. The index of these shards is then built in a folder of the user, and updated when the
// shards change.
//
//   <folder>/<32 hex digits>.idx          the index, next to its offset table
//   <folder>/<32 hex digits>.idx.lock     locked by the process that builds the index, and contains
//                                         its name; its modification time is the day of last use
//
// The hexadecimal digits are a hash of the sources and of the options that determine the index's
// content. Sources enter the hash as absolute paths and URLs without users, passwords and
// signatures. Processes in different working directories therefore share one index. If a directory
// gets more shards, or a URL a new signature, the index is still the same file.
//
// An index at a URL is fetched into the same folder:
//
//   <folder>/<32 hex digits>.idx.fetched/     its current and previous files, and origin.json
//   <folder>/<32 hex digits>.idx.lock         as above
//
// Indexes that were not used for 30 days are removed when another one is built or fetched. You may
// delete the folder whenever no index is being built or fetched.

struct IndexCacheOptions {
  /// The folder. Empty means $XDG_CACHE_HOME/shardwise, else $HOME/.cache/shardwise. It is created
  /// with mode 0700. A folder that belongs to another user, or is writable by others, is refused.
  std::string directory = {};
  /// If false, shards without a built index are an error. Its text states the command that builds
  /// the index.
  bool build_missing = true;
  /// For an index at a URL, use the copy in the folder, without asking the server. If there is no
  /// copy, opening the URL is an error.
  bool offline = false;
  /// If the folder has a copy of an index at a URL with this Index::fingerprint(), use that copy
  /// without asking the server. If two versions in the folder have it, the current one is used.
  /// Without such a copy the server is asked as usual, and may have another version.
  std::optional<Hash128> fingerprint = {};
  /// How indexes are built. `content` is part of an index's identity. `sources`, `part` and
  /// `drop_missing` are ignored.
  BuildOptions build = {};
  /// Called with the expanded sources, before their index is looked up. The index stores URLs
  /// without secrets. Pass the shards of `sources` as Index::Lookup::urls, so that shards are
  /// fetched from the URLs that the user gave.
  std::function<void(const SourceList& sources)> on_sources = {};
  /// Called before a build begins, on the thread that requested the index.
  std::function<void(const std::string& index, const BuildPlan::RemoteReading& remote)> on_build =
      {};
  /// Called after the build.
  std::function<void(const std::string& index, const SourceList& sources,
                     const BuildReport& report)>
      on_built = {};
  /// Called before an index at a URL is fetched, with its URL without secrets and the size of its
  /// table; 0 if the size is unknown.
  std::function<void(const std::string& url, std::uint64_t size_bytes)> on_fetch = {};
  /// Called if the server of an index at a URL cannot be reached, before the user's copy is used.
  std::function<void(const std::string& url, const std::string& reason)> on_unreached = {};
  /// Called while another process builds or fetches the index: after one second, then every ten
  /// seconds.
  /// `builder` is e.g. "process 1 on host".
  std::function<void(const std::string& builder, std::chrono::milliseconds waited)> on_wait = {};
};

/// True if `name` is treated as an index, false if it is treated as a source for read_sources().
///
/// An existing file is classified by its content. SQLite files are indexes. Directories, tars,
/// compressed files, and files named like a shard or descriptor are sources.
///
/// A name without a file is a source if it is a list (`-`, `@list.txt`), a URL or a pattern, or
/// looks like a shard or descriptor. All other names are indexes. Every name that ends in `.idx` is
/// an index, including a URL whose path does. A misspelt index is therefore reported as missing.
/// Cost: reads 512 bytes.
SHARDWISE_EXPORT bool names_an_index(const std::string& name);

/// Returns the path of the index for `name`:
///
/// - The path of an index is returned unchanged.
/// - For the URL of an index, returns the path of a copy in the folder of the cache. The call
///   fetches the index's two files and checks them completely, unless the server states that the
///   copy is current. If the server cannot be reached in a few seconds, the copy is used. Shards
///   with relative paths are below the folder of the URL.
/// - For a source, returns the path of its index in the folder of the cache. The call builds that
///   index if it is missing, and updates it if shards were added, changed or removed. If the source
///   is a descriptor, its claims about the shards are checked.
///
/// One process at a time builds an index; other processes that need it wait. If that process is
/// killed, the next one continues its build. On a file system without locks, each process builds
/// the index itself, which is safe but more work. On NFS, locks work between machines, unless it is
/// mounted with `nolock` or `local_lock`.
///
/// Threads: safe concurrently; if several threads need one index, one of them builds.
/// Cost: if nothing changed, it lists directories and reads 512 bytes per local shard. Per remote
///   shard it makes one request, 16 at a time. If a server states no validator, its shards are read
///   completely each time. If something changed, see build_index().
/// Errors: those of read_sources() and build_index(). InvalidArgument if the folder is refused, or
///   building is not allowed. Mismatch for a wrong claim of a descriptor.
/// Errors for the URL of an index: NotFound if the server does not have it, or if `offline` is set
///   and the folder has no copy. CorruptIndex if the file is not an index, or the two files do not
///   belong together. FetchError.
SHARDWISE_EXPORT std::string index_for(const std::string& name,
                                       const IndexCacheOptions& options = {});
/// Returns the index of several sources. Their order determines the numbers of the samples. A
/// single source is treated as above.
/// Errors: also InvalidArgument if one of several sources is an index.
SHARDWISE_EXPORT std::string index_for(const std::vector<std::string>& sources,
                                       const IndexCacheOptions& options = {});

/// Returns the remote bytes that the build of `plan` over `sources` will read. The call itself
/// reads no shard.
SHARDWISE_EXPORT BuildPlan::RemoteReading remote_reading(const BuildPlan& plan,
                                                         const SourceList& sources,
                                                         const RemoteAccess& remote);

}  // namespace shardwise
