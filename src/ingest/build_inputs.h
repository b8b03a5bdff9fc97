#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ingest/distinct_shards.h"
#include "ingest/reusable_index.h"
#include "ingest/shard_bytes.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {

/// A shard to scan.
struct Rescan {
  ShardPlace place;
  std::string url;  ///< in the form that the index stores
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;  ///< of a local file
};

/// A shard whose records are taken from another index.
struct Reuse {
  const ReusableIndex* donor = nullptr;
  /// The donor's row, with `url` as the new index stores it and `path` as it was named. If the
  /// shard was copied, time and validator are those of the copy.
  Index::Shard row;
};

/// A shard of the new index.
using Source = std::variant<Rescan, Reuse>;

const std::string& url_of(const Source& source);
std::uint64_t size_of(const Source& source);
/// The common folder of all remote URLs: see UrlBase.
std::string url_base_of(const std::vector<Source>& sources);

/// True if size, time and validator equal the row's. False if they are unknown for a remote shard.
bool same_state(const Index::Shard& row, const Rescan& now);

/// A hash of all options that affect a scan's result.
std::uint64_t scan_options_hash(const Index::Content& content);

/// The inputs of a build: the old index, and the shards as they are now.
struct BuildInputs {
  std::unique_ptr<ReusableIndex> old;
  std::optional<Index::Part> part;
  std::vector<std::string> stored_sources;  ///< sources of the shards, in stored form
  std::vector<Source> sources;
  std::vector<std::string> missing;  ///< paths that do not exist, and are left out
  std::vector<std::string> gone;     ///< paths in the old index that were not named again
};

/// Looks up the state of each shard, in order, without reading it. Paths that do not exist are
/// added to `missing`, the others to `named`.
/// Errors: NotFound for a remote shard, unless `options` drop missing ones; kIo; Unsupported;
///   InvalidArgument if a shard is in `named` already; those of RemoteShards.
std::vector<Rescan> look_at_each(const std::string& index_path, std::span<const std::string> shards,
                                 const BuildOptions& options, DistinctShards& named,
                                 std::vector<std::string>& missing);

/// Throws NotFound if any shard is missing; the text counts them.
/// @param num_shards  shards that were looked up, with the missing ones.
void require_none_missing(const std::vector<std::string>& missing, std::size_t num_shards,
                          std::string_view remedy);

/// Looks up all shards, and finds those that did not change.
/// Errors: as build_index.
BuildInputs look_at_all(const std::string& path, const std::vector<std::string>& shards,
                        const BuildOptions& options);

}  // namespace shardwise
