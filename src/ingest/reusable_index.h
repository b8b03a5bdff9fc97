#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "index/index_files.h"
#include "ingest/shard_scan.h"
#include "shardwise/base/export.h"

namespace shardwise {

/// An index whose records are taken over into a new one. Immutable.
/// Threads: any.
struct ReusableIndex {
  /// Errors: NotFound; CorruptIndex; VersionMismatch.
  /// Cost: reads all of both files.
  explicit ReusableIndex(const std::string& path);

  const Index::Summary& summary() const noexcept { return files.catalogue().meta().summary; }
  const std::vector<std::string>& sources() const noexcept {
    return files.catalogue().meta().sources;
  }
  /// Reads the records of a shard.
  /// @param row  the shard's row in this index; only its url may differ.
  ShardPart take_over(const Index::Shard& row) const;

  IndexFiles files;
  std::string home;  ///< the directory that relative urls begin at
  std::map<std::uint64_t, std::vector<Index::SkippedMember>> skipped;  ///< by shard
};

/// Opens the index at `path`, to take over the shards that did not change. Returns nothing if it
/// does not exist, is damaged or has another version: all shards are scanned then.
/// Errors: InvalidArgument if the file is not an index.
std::unique_ptr<ReusableIndex> open_old_index(const std::string& path);

/// The options that an existing index was built with, for a build that keeps them.
struct EarlierContent {
  Index::Content content{};
  bool is_lost = false;  ///< the index cannot be read, and the build replaces it
};

/// Returns the options of the index at `path`, or the defaults if there is none.
SHARDWISE_EXPORT EarlierContent earlier_content(const std::string& path);

}  // namespace shardwise
