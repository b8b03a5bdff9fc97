#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "index/index_files.h"
#include "ingest/shard_scan.h"

namespace shardwise {

/// An index whose shards' records are taken over. Immutable; any thread.
struct ReusableIndex {
  /// Errors: NotFound; CorruptIndex; VersionMismatch. Cost: reads all of both files.
  explicit ReusableIndex(const std::string& path);

  const Index::Summary& summary() const noexcept { return files.catalogue().meta().summary; }
  const std::vector<std::string>& sources() const noexcept {
    return files.catalogue().meta().sources;
  }
  /// Reads what it has of a shard.
  /// @param row  the shard's row in this index; only its url may be another.
  ShardPart take_over(const Index::Shard& row) const;

  IndexFiles files;
  std::string home;  ///< the directory that urls are relative to
  std::map<std::uint64_t, std::vector<Index::SkippedMember>> skipped;  ///< by shard
};

/// Opens the index that is at `path` already, to take over the shards that did not change. Returns
/// nothing if there is none, or none that is whole and of this version: then all shards are
/// scanned. Errors: InvalidArgument if the file there is no index.
std::unique_ptr<ReusableIndex> open_old_index(const std::string& path);

}  // namespace shardwise
