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

/// An index whose records are copied into a new index. Immutable.
/// Threads: any.
struct ReusableIndex {
  /// Errors: NotFound; CorruptIndex; VersionMismatch.
  explicit ReusableIndex(const std::string& path);

  const Index::Summary& summary() const noexcept { return files.catalogue().meta().summary; }
  const std::vector<std::string>& sources() const noexcept {
    return files.catalogue().meta().sources;
  }
  /// Reads the records of a shard.
  /// @param row  the shard's row in this index; only its URL may differ.
  /// Errors: CorruptIndex.
  ShardPart take_over(const Index::Shard& row) const;
  /// Returns a part without the shard's records, which Assembly copies from this index. Checks the
  /// checksum of the records.
  /// Errors: CorruptIndex.
  ShardPart keep(const Index::Shard& row) const;

  IndexFiles files;
  std::string home;  ///< directory to which relative URLs refer
  /// Skipped members, by shard number.
  std::map<std::uint64_t, std::vector<Index::SkippedMember>> skipped;
};

/// Opens the index at `path`, so that the records of unchanged shards can be reused. Returns null
/// if the index does not exist, cannot be opened or has another version; all shards are then
/// scanned.
/// Errors: InvalidArgument if the file is not an index.
std::unique_ptr<ReusableIndex> open_old_index(const std::string& path);

namespace detail {

/// The options that an existing index was built with, for a build that keeps them.
struct EarlierContent {
  Index::Content content{};
  bool is_lost = false;  ///< the index cannot be read, and the build replaces it
};

/// Returns the options of the index at `path`, or the defaults if there is none.
SHARDWISE_EXPORT EarlierContent earlier_content(const std::string& path);

}  // namespace detail

}  // namespace shardwise
