#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/base/progress.h"
#include "shardwise/index/defect_policies.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/remote_access.h"
#include "shardwise/ingest/source_list.h"

namespace shardwise {

struct BuildOptions {
  /// One of several builds, possibly on several machines. merge_indexes() joins their indexes.
  struct Part {
    std::uint64_t number = 1;  ///< from 1
    std::uint64_t count = 1;
  };

  /// Number of scanning threads. 0 means the calling thread only; empty means one per core.
  std::optional<unsigned> threads = {};
  Index::Content content = {};
  /// The sources that were expanded to the shards, see SourceList::sources. The index stores them,
  /// and update_index() expands their directories, globs and descriptors again. Empty means that
  /// update_index() uses the stored list of shards.
  std::vector<std::string> sources = {};
  /// Leave out missing shards instead of failing. The index stores the paths of all shards, so
  /// update_index() looks for them again. If all shards are missing, the build fails, unless it
  /// builds a part.
  bool drop_missing = false;
  /// Reuse the index's records of shards that were copied, without scanning the copies. A copy has
  /// another time or validator, but its size, first 512 bytes and some headers are equal. A changed
  /// shard that passes these checks is not detected; see Index::Lookup.
  bool accept_times = false;
  /// Read the whole existing index first, and scan all shards if any part of it is damaged. If
  /// false, an update checks only what it copies, so damage of unchanged records may remain.
  bool check_index = false;
  /// Index only shards [n * (number - 1) / count, n * number / count) of all n shards.
  std::optional<Part> part = {};
  /// Called after each shard, and from time to time within a large one. Reused shards count as
  /// done.
  ProgressCallback progress = {};
  /// Access to remote shards. Null means that remote shards are an error.
  RemoteAccess remote = nullptr;
  /// Makes the build throw Cancelled; the existing index is unchanged.
  CancelToken cancel = {};
  /// Limits on the work that is lost if the build is killed: bytes of the offset table and time of
  /// scanning. See "Journal" of build_index().
  std::uint64_t journal_bytes = std::uint64_t{8} << 20;
  std::chrono::milliseconds journal_age{1000};
};

/// The result of a build, and a summary of the index that it built, even if another build has
/// replaced that index since.
struct BuildReport {
  Index::Summary summary;
  std::uint64_t shards_scanned = 0;
  std::uint64_t shards_reused = 0;  ///< unchanged since they were scanned
  /// Reused shards whose path or time changed; part of `shards_reused`.
  std::uint64_t shards_moved = 0;
  /// Shards scanned by an earlier build that did not finish; part of `shards_reused`.
  std::uint64_t shards_resumed = 0;
  std::vector<std::string> dropped;  ///< paths of missing shards, which were left out
  /// Paths of shards in the old index that are not in the new list.
  std::vector<std::string> gone;
  std::vector<std::uint64_t> without_value;  ///< per column: the number of samples whose value is
                                             ///< null
  std::uint64_t num_not_samples = 0;         ///< links, directories, devices
  /// Paths of shards without an end marker.
  std::vector<std::string> without_end_marker;
  std::vector<std::string> concatenated;         ///< paths of shards of several archives
  std::vector<std::string> with_trailing_bytes;  ///< paths of shards with data after the end marker
  /// Paths of compressed shards without a checksum of their content. Only hashes can detect damage.
  std::vector<std::string> without_checksum;
};

/// Builds or updates the index at `path` for exactly these shards. Samples are numbered in the
/// order of `shards`, and within a shard in archive order.
///
/// Reuse: a local shard is not scanned again if its path, size, mtime_ns and first 512 bytes are
///   unchanged. A remote shard is not scanned again if its URL, size and validator are unchanged. A
///   local shard at a new path counts as moved, and is not scanned, if exactly one missing shard
///   had its size, mtime_ns and first 512 bytes.
///
/// Samples follow WebDataset. The basename of a member is split at its first dot. The key is the
/// part before the dot, with the directories. The field is the part after the dot, in lower case.
/// Consecutive members with one key form a sample. Only regular files are members of samples.
/// Compressed shards (gzip, zstd, xz, bzip2, lz4, detected by content) are indexed in one pass over
/// their expanded bytes. Their samples cannot be read in place.
///
/// URLs are fetched as given. The index and its journal store them without user, password, fragment
/// and signature, so a newly signed URL still means the same shard. Readers supply credentials
/// (Fetchers::Options, Index::Lookup::urls). If other parts of a URL may be secret (values in a
/// query, commands), the files of the index have mode 0600.
///
/// Effects: writes two files, `path` (SQLite catalogue) and `path.<hash>.table` (offset table).
///   Both are written to temporary files, synced and renamed, the catalogue last. A reader sees
///   either the old index or the new one. Concurrent builds of one path are safe: the index of the
///   last one to finish remains.
///
/// Journal: a build that takes longer than a second writes `path.journal`, about as large as the
///   offset table. If that build is killed, fails or is cancelled, the next build continues from
///   this file. It repeats at most `journal_bytes` of table and `journal_age` of scanning, and
///   removes the temporary files of a killed build. If a file of this name exists but is not a
///   journal, or is not writable, the file is kept and the build writes no journal.
///
/// Threads: starts its own and joins them.
/// Cost: one pass over the headers; with hashes, one pass over all bytes.
/// Memory: the records of a few shards per thread, 1 to 2 KB per shard, and a buffer of 16 bytes
///   per sample, at most 64 MiB. While the buffer grows, it takes half as much again.
/// Errors: NotFound. kIo. kNoSpace. CorruptShard and Unsupported, naming shard, offset and member.
///   Cancelled. InvalidArgument if `shards` is empty or contains a shard twice, even under
///   different names. After an error the old index is unchanged.
SHARDWISE_EXPORT BuildReport build_index(const std::string& path,
                                         const std::vector<std::string>& shards,
                                         const BuildOptions& options = {});

/// The work that a build would do. Shards are named by path or URL.
struct BuildPlan {
  /// The remote bytes that a build is about to read.
  struct RemoteReading {
    std::uint64_t num_shards = 0;
    /// Size of these shards as their servers state it, or else the descriptor. If a server supports
    /// ranges, fewer bytes are read, because the data of large members is skipped.
    std::uint64_t bytes = 0;
    std::uint64_t num_unknown = 0;  ///< shards of unknown size
  };

  std::vector<std::string> read;       ///< shards to scan
  std::uint64_t bytes_to_read = 0;     ///< of the shards in `read` whose size is known
  std::vector<std::string> resumed;    ///< shards scanned by a build that did not finish
  std::vector<std::string> unchanged;  ///< shards to reuse from the index
  std::vector<std::string> missing;    ///< missing shards, which will be left out
  std::vector<std::string> gone;       ///< shards only in the old index
};

/// Returns what build_index() would do with the same arguments, without changing anything.
/// Cost: that of a build in which no shard changed. Errors: those of build_index() before it scans.
SHARDWISE_EXPORT BuildPlan plan_index(const std::string& path,
                                      const std::vector<std::string>& shards,
                                      const BuildOptions& options = {});
/// Returns what update_index() would do. See plan_index().
SHARDWISE_EXPORT BuildPlan plan_update(const std::string& path, const BuildOptions& options = {});

/// Updates the index at `path` with its stored content options. If it was built with
/// BuildOptions::sources, these are expanded again to the shards. Otherwise the index's own list of
/// shards is used. `content`, `sources` and `part` of `options` are ignored.
/// Errors: those of build_index() and read_sources(). NotFound if there is no index.
///   InvalidArgument if it is a part.
SHARDWISE_EXPORT BuildReport update_index(const std::string& path,
                                          const BuildOptions& options = {});

/// True if a build of the index at `path` did not finish and left shards in its journal. The next
/// build with the same content options continues from the journal.
SHARDWISE_EXPORT bool has_journal(const std::string& path);

/// Returns the BuildOptions::sources of the index at `path`; empty if it has none. Paths are
/// relative to the current directory. Use read_sources() to expand them to the shards that
/// update_index() uses.
/// Errors: those of Index::open. InvalidArgument if it is a part.
SHARDWISE_EXPORT std::vector<std::string> index_sources(const std::string& path);

/// Returns read_sources(index_sources(path)), the shards that update_index() uses; empty if the
/// index has no sources.
/// Errors: those of both functions.
SHARDWISE_EXPORT SourceList read_index_sources(const std::string& path,
                                               const RemoteAccess& remote = nullptr);

/// Joins all parts of an index, in any order, into the index at `path`. The offset table is
/// identical to that of a single build. No shard is accessed.
/// Errors: Mismatch if parts are missing, occur twice, or were built differently. The errors of
///   build_index().
SHARDWISE_EXPORT BuildReport merge_indexes(const std::string& path,
                                           const std::vector<std::string>& parts,
                                           const BuildOptions& options = {});

}  // namespace shardwise
