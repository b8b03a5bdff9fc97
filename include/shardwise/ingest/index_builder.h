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
  /// One of several builds, possibly on several machines, whose indexes merge_indexes() joins.
  struct Part {
    std::uint64_t number = 1;  ///< from 1
    std::uint64_t count = 1;
  };

  /// Number of scanning threads. 0 means the calling thread only; empty means one per core.
  std::optional<unsigned> threads = {};
  Index::Content content = {};
  /// The sources that stand for the shards, from SourceList::sources. The index stores them, and
  /// update_index() expands directories, globs and descriptors again. Empty means that
  /// update_index() uses the stored list of shards.
  std::vector<std::string> sources = {};
  /// Leave out missing shards instead of failing. The index stores the paths of all shards, so
  /// update_index() looks for them again. If all shards are missing, the build fails, unless it
  /// builds a part.
  bool drop_missing = false;
  /// Reuse records of copied shards without scanning them. A copy has another time or validator,
  /// but the same size, first 512 bytes and some headers. A changed shard that passes these checks
  /// goes unnoticed; see Index::Lookup.
  bool accept_times = false;
  /// Index only shards [n * (number - 1) / count, n * number / count) of all n shards.
  std::optional<Part> part = {};
  /// Called after each shard, and from time to time within a large one. Reused shards count as
  /// done.
  ProgressCallback progress = {};
  /// Access to remote shards. Null means that they are an error.
  RemoteAccess remote = nullptr;
  /// Makes the build throw Cancelled; the existing index is unchanged.
  CancelToken cancel = {};
  /// Limits on the work that a killed build loses, see build_index().
  std::uint64_t journal_bytes = std::uint64_t{8} << 20;
  std::chrono::milliseconds journal_age{1000};
};

/// The work of a build, and a summary of its index, even if another build has replaced that index
/// since.
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
  std::vector<std::uint64_t> without_value;  ///< per column, samples whose value is null
  std::uint64_t num_not_samples = 0;         ///< links, directories, devices
  /// Paths of shards without an end marker.
  std::vector<std::string> without_end_marker;
  std::vector<std::string> concatenated;         ///< paths of shards of several archives
  std::vector<std::string> with_trailing_bytes;  ///< paths of shards with data after the end marker
  /// Paths of compressed shards without a checksum of their content. Only hashes can detect damage.
  std::vector<std::string> without_checksum;
};

/// Builds or updates the index at `path` for exactly these shards. Samples are numbered in the
/// order of `shards`, and within a shard by their position.
///
/// Reuse: a shard is not scanned again if its path, size, mtime_ns and first 512 bytes are
///   unchanged, or its URL, size and validator. A local shard at a new path is not scanned if it
///   was moved. It then equals exactly one missing shard in size, mtime_ns and first 512 bytes.
///
/// Samples follow WebDataset. The basename of a member is split at its first dot. The key is the
/// part before it, with the directories; the field is the part after it in lower case. Consecutive
/// members with one key form a sample. Only regular files are members of samples. Compressed shards
/// (gzip, zstd, xz, bzip2, lz4, detected by content) are indexed in one pass over their expanded
/// bytes. Their samples cannot be read in place.
///
/// URLs are fetched as given. The index and its journal store them without user, password, fragment
/// and signature, so a newly signed URL is the same shard. Readers supply credentials
/// (Fetchers::Options, Index::Lookup::urls). If other parts of a URL may be secret (values in a
/// query, commands), the files of the index have mode 0600.
///
/// Effects: writes two files, `path` (SQLite catalogue) and `path.<hash>.table` (offset table).
///   Both are written to temporary files, synced and renamed, the catalogue last. A reader sees
///   either the old index or the new one. Concurrent builds of one path are safe; the last to
///   finish wins.
///
/// Journal: a build that takes longer than a second writes `path.journal`, about as large as the
///   offset table. If that build is killed, fails or is cancelled, the next build continues from
///   this file. It repeats at most `journal_bytes` of table and `journal_age` of scanning, and
///   removes what a killed build left. If a file of this name exists that no build wrote, or that
///   is not writable, it is kept, and there is no journal.
///
/// Threads: starts its own and joins them.
/// Cost: one pass over the headers; with hashes over all bytes.
/// Memory: the records of a few shards per thread, and 1 to 2 KB per shard. A buffer takes 16 bytes
///   per sample up to 64 MiB, and half as much again while it grows.
/// Errors: NotFound. kIo. kNoSpace. CorruptShard and Unsupported, naming shard, offset and member.
///   Cancelled. InvalidArgument if `shards` is empty or contains a shard twice, even under
///   different names. After an error the old index is unchanged.
SHARDWISE_EXPORT BuildReport build_index(const std::string& path,
                                         const std::vector<std::string>& shards,
                                         const BuildOptions& options = {});

/// The work that a build would do, listing shards by path or URL.
struct BuildPlan {
  /// The remote bytes that a build is about to read.
  struct RemoteReading {
    std::uint64_t num_shards = 0;
    /// Size of these shards according to their servers, else the descriptor. If a server supports
    /// ranges, less is read, because the data of large members is skipped.
    std::uint64_t bytes = 0;
    std::uint64_t num_unknown = 0;  ///< shards of unknown size
  };

  std::vector<std::string> read;       ///< to be scanned
  std::uint64_t bytes_to_read = 0;     ///< size of `read`, as far as known
  std::vector<std::string> resumed;    ///< scanned by a build that did not finish
  std::vector<std::string> unchanged;  ///< to be reused from the index
  std::vector<std::string> missing;    ///< missing, to be left out
  std::vector<std::string> gone;       ///< in the old index only
};

/// Returns what build_index() would do with the same arguments, without changing anything.
/// Cost: that of a build in which no shard changed. Errors: those of build_index() before it scans.
SHARDWISE_EXPORT BuildPlan plan_index(const std::string& path,
                                      const std::vector<std::string>& shards,
                                      const BuildOptions& options = {});
/// Returns what update_index() would do. See plan_index().
SHARDWISE_EXPORT BuildPlan plan_update(const std::string& path, const BuildOptions& options = {});

/// Updates the index at `path` with its stored content options. The shards are those that it names
/// or, if it was built with BuildOptions::sources, those that the sources stand for now. `content`,
/// `sources` and `part` of `options` are ignored.
/// Errors: those of build_index() and read_sources(). NotFound if there is no index.
///   InvalidArgument if it is a part.
SHARDWISE_EXPORT BuildReport update_index(const std::string& path,
                                          const BuildOptions& options = {});

/// True if a build of the index at `path` did not finish and left shards in its journal. The next
/// build with the same content options continues from there.
SHARDWISE_EXPORT bool has_journal(const std::string& path);

/// Returns the BuildOptions::sources of the index at `path`, with paths relative to the current
/// directory; empty if it has none. Use read_sources() to expand them to the shards that
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
