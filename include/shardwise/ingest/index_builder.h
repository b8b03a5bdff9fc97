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
  /// One of several builds, on several machines perhaps, that merge_indexes joins.
  struct Part {
    std::uint64_t number = 1;  ///< from 1
    std::uint64_t count = 1;
  };

  /// Threads that scan; 0: the calling one alone. Nothing: one per core.
  std::optional<unsigned> threads = {};
  Index::Content content = {};
  /// The words that the shards were named by, as read_sources() returns them: SourceList::sources.
  /// They are kept in the index, and update_index() lists directories, globs and descriptors among
  /// them again. Empty: update_index() takes the shards that the index has.
  std::vector<std::string> sources = {};
  /// Leave out shards that do not exist, instead of failing. The index keeps the paths of all
  /// shards, so that update_index() looks for them again. If no shard exists, the build fails all
  /// the same, unless it builds a part.
  bool drop_missing = false;
  /// Take over copied shards without reading them: shards with another time or validator, but with
  /// the size, the first 512 bytes and some headers that the index has. A changed shard that passes
  /// these checks is not noticed; see Index::Lookup.
  bool accept_times = false;
  /// Index only shards [n * (number - 1) / count, n * number / count) of the n.
  std::optional<Part> part = {};
  /// Called after each shard, and now and then while a large one is read. Shards that are taken
  /// over count as done.
  ProgressCallback progress = {};
  /// Access to remote shards; none: they are an error.
  RemoteAccess remote = nullptr;
  /// Stops the build with Cancelled; the index is as it was.
  CancelToken cancel = {};
  /// How much work a build that is killed may lose: see build_index.
  std::uint64_t journal_bytes = std::uint64_t{8} << 20;
  std::chrono::milliseconds journal_age{1000};
};

/// The work of a build, and the index that it made (even if another build has replaced that index
/// meanwhile).
struct BuildReport {
  Index::Summary summary;
  std::uint64_t shards_scanned = 0;
  std::uint64_t shards_reused = 0;  ///< taken over: unchanged since they were scanned
  std::uint64_t shards_moved = 0;  ///< of them, under another path, or of another time, than before
  std::uint64_t shards_resumed = 0;  ///< of them, from a build that did not finish
  std::vector<std::string> dropped;  ///< paths of missing shards that were left out
  std::vector<std::string> gone;  ///< paths of shards that the index had, and were not named again
  std::vector<std::uint64_t> without_value;     ///< samples whose value is null, for each column
  std::uint64_t num_not_samples = 0;            ///< links, directories, devices
  std::vector<std::string> without_end_marker;  ///< paths of shards that end at a member without it
  std::vector<std::string> concatenated;        ///< paths of shards that hold more than one archive
  std::vector<std::string>
      with_trailing_bytes;  ///< paths of shards with rubbish after their end marker
  /// Paths of compressed shards without a checksum over their content: only hashes find damage.
  std::vector<std::string> without_checksum;
};

/// Scans `shards` (paths and URLs, in the order that numbers the samples) and makes the index at
/// `path`, or updates the one that is there. Shards with the same path, size, mtime_ns and first
/// 512 bytes, or the same URL, size and validator, are not read again. Nor are local shards that
/// moved: a shard at a new path counts as moved if it has the size, mtime_ns and first 512 bytes of
/// one that is no longer at its path, and of no other. Afterwards the index holds these shards and
/// no others; samples are numbered in this order of shards, and within a shard as they lie.
///
/// Samples follow WebDataset. The basename of a member is cut at its first dot: the part before it,
/// with the directories, is the key; the part after it, lower-cased, is the field. Consecutive
/// members of one key are a sample. Only regular files are members of samples. Compressed shards
/// (gzip, zstd, xz, bzip2, lz4, recognised by content) are indexed in one pass over their expanded
/// bytes; their samples cannot be read in place.
///
/// URLs are fetched as they are given. The index, its journal and the words keep them without user,
/// password, fragment and signature, so that the same shard signed anew is the same URL; who reads
/// the shards says who asks (Fetchers::Options, Index::Lookup::urls). Files of an index that holds
/// what else may be secret (other values in a query, commands) can be read by their owner alone:
/// mode 0600.
///
/// Effects: two files, `path` (SQLite catalogue) and `path.<hash>.table` (offset table), each
/// written under a temporary name, synced and renamed, the catalogue last: that rename is the
/// moment at which the new index exists. A reader sees the old index or the new one. A build that
/// takes longer than a second keeps `path.journal`, which takes as much room as the table. If it is
/// killed, fails or is cancelled, the next build continues from there: at most `journal_bytes` of
/// table and `journal_age` of scanning are done again. A file of this name that no build left, or
/// that cannot be written, stays as it is: then there is no journal. What a killed build left is
/// removed by the next. Two builds of one path at once are safe; the last to finish wins.
///
/// Threads: makes its own, and joins them.
/// Cost: one pass over the headers (all bytes with hashes).
/// Memory: the records of a few shards a thread, 16 bytes a sample up to 64 MiB
///   (half as much again while that buffer grows), and 1 to 2 KB a shard.
/// Errors: NotFound, kIo, kNoSpace; CorruptShard and Unsupported with shard, offset and member;
///   Cancelled; InvalidArgument if `shards` is empty or holds a shard twice, under whatever names.
///   The old index, if any, stays as it was.
SHARDWISE_EXPORT BuildReport build_index(const std::string& path,
                                         const std::vector<std::string>& shards,
                                         const BuildOptions& options = {});

/// The work that a build would do with each shard, by path or URL.
struct BuildPlan {
  /// The remote bytes that a build is about to read.
  struct RemoteReading {
    std::uint64_t num_shards = 0;
    /// The size of these shards, as their servers state it, or else the descriptor. From a server
    /// that gives parts of files less is read, because the data of large members is stepped over.
    std::uint64_t bytes = 0;
    std::uint64_t num_unknown = 0;  ///< shards whose size is not known
  };

  std::vector<std::string> read;       ///< would be read
  std::uint64_t bytes_to_read = 0;     ///< of them, as far as their sizes are known
  std::vector<std::string> resumed;    ///< were read by a build that did not finish
  std::vector<std::string> unchanged;  ///< would be taken over from the index
  std::vector<std::string> missing;    ///< are not there, and would be left out
  std::vector<std::string> gone;       ///< are in the index, and would not be any more
};

/// Looks at what build_index() would do with the same arguments, and changes nothing.
/// Cost: as a build of which no shard has changed. Errors: as build_index before it reads shards.
SHARDWISE_EXPORT BuildPlan plan_index(const std::string& path,
                                      const std::vector<std::string>& shards,
                                      const BuildOptions& options = {});
/// As plan_index(), for update_index().
SHARDWISE_EXPORT BuildPlan plan_update(const std::string& path, const BuildOptions& options = {});

/// Brings the index at `path` up to date with the shards that it names, or, if it was built with
/// BuildOptions::sources, with those that these stand for now; and the content that it was built
/// with. `options.content`, `options.sources` and `options.part` are not looked at.
/// Errors: as build_index and read_sources; NotFound if there is no index; InvalidArgument if it is
///   a part.
SHARDWISE_EXPORT BuildReport update_index(const std::string& path,
                                          const BuildOptions& options = {});

/// True if a build of the index at `path` did not finish, and left a journal from which the next
/// one goes on.
SHARDWISE_EXPORT bool has_journal(const std::string& path);

/// The words of BuildOptions::sources that the index at `path` was built with, as paths relative to
/// the current directory; empty if it was built with none. read_sources() turns them into the
/// shards that update_index() takes.
/// Errors: as Index::open; InvalidArgument if it is a part.
SHARDWISE_EXPORT std::vector<std::string> index_sources(const std::string& path);

/// read_sources() of these words: what update_index() takes; empty if there are none.
/// Errors: as both.
SHARDWISE_EXPORT SourceList read_index_sources(const std::string& path,
                                               const RemoteAccess& remote = nullptr);

/// Joins all parts of an index, in any order of `parts`, into the index at `path`. The offset table
/// is byte for byte the one that a single build makes. No shard is read or looked at.
/// Errors: Mismatch if parts are missing, come twice, or were built differently; as build_index.
SHARDWISE_EXPORT BuildReport merge_indexes(const std::string& path,
                                           const std::vector<std::string>& parts,
                                           const BuildOptions& options = {});

}  // namespace shardwise
