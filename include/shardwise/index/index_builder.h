#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise {

/// What to do with a member that breaks a rule.
enum class OnBad : std::uint8_t {
  kError,  ///< throw, naming shard, offset and member; no index is made
  kSkip    ///< leave it out, and record in the catalogue what was left out and why
};

struct BuildProgress {
  std::uint64_t shards_done = 0;
  std::uint64_t num_shards = 0;
  std::uint64_t samples = 0;
  std::uint64_t bytes_done = 0;  ///< of shards, read or known to be unchanged
  std::uint64_t num_bytes = 0;
};

struct BuildOptions {
  /// Scanning threads. 0: one a core.
  unsigned num_threads = 0;
  OnBad on_bad = OnBad::kError;
  /// Called from the building thread after each shard.
  std::function<void(const BuildProgress&)> progress = {};
  /// If it becomes true the build stops with Cancelled, and the index is as it was.
  const std::atomic<bool>* cancel = nullptr;
};

struct BuildReport {
  IndexSummary summary;
  std::uint64_t shards_scanned = 0;
  std::uint64_t shards_reused = 0;    ///< unchanged since the index that was there before
  std::uint64_t num_not_samples = 0;  ///< links, directories, devices
  std::vector<std::uint64_t>
      without_end_marker;                   ///< shards that end at a member boundary without it
  std::vector<std::uint64_t> concatenated;  ///< shards that hold more than one archive
  std::vector<std::uint64_t> with_trailing_bytes;  ///< shards with rubbish after their end marker
};

/// Scans `shards` (paths, in the order that numbers the samples) and makes the index at `path`, or
/// brings the one that is there up to date: shards with the same path, size and mtime_ns are not
/// read again. Afterwards the index holds these shards and no others.
///
/// Samples follow WebDataset: the basename of a member is cut at its first dot; before it, with the
/// directories, is the key; after it, lower-cased, the field; consecutive members of one key are a
/// sample. Only regular files are members of samples.
///
/// Effects: two files, `path` (SQLite catalogue) and `path.<hash>.table` (offset table), each
/// written under a temporary name, synced and renamed, the catalogue last: that rename is the
/// moment at which the new index exists. A reader sees the old index or the new one. What a killed
/// build left is removed by the next. Two builds of one path at once are safe; the last to finish
/// wins. Threads: makes its own, and joins them. Cost: one pass over the headers; memory does not
/// grow with the number of shards. Errors: NotFound, kIo, kNoSpace; CorruptShard and Unsupported
/// with shard, offset and member;
///   Cancelled; InvalidArgument if `shards` is empty. The old index, if any, stays as it was.
SHARDWISE_EXPORT BuildReport build_index(const std::string& path,
                                         const std::vector<std::string>& shards,
                                         const BuildOptions& options = {});

}  // namespace shardwise
