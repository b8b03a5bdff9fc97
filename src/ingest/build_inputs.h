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

/// A shard that must be scanned.
struct Rescan {
  ShardPlace place;
  std::string url;  ///< URL in the form that the index stores
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;  ///< modification time of a local file
};

/// A shard whose records are copied from another index.
struct Reuse {
  const ReusableIndex* donor = nullptr;
  /// The donor's row, but with the `url` that the new index stores, and the `path` that the sources
  /// name. If the shard is a copy of the donor's, time and validator are those of the copy.
  Index::Shard row;
  bool is_moved = false;  ///< the row differs from the donor's in URL, time or validator
};

/// A shard of the new index.
using Source = std::variant<Rescan, Reuse>;

const std::string& url_of(const Source& source);
std::uint64_t size_of(const Source& source);
/// Returns the common folder of all remote URLs; see UrlBase.
std::string url_base_of(const std::vector<Source>& sources);

/// True if size, time and validator equal the row's. False for a remote shard if they are unknown.
bool same_state(const Index::Shard& row, const Rescan& now);

/// Returns a hash of all options that affect a scan's result.
std::uint64_t scan_options_hash(const Index::Content& content);

/// The inputs of a build: the old index, and the present state of the shards.
struct BuildInputs {
  std::unique_ptr<ReusableIndex> old;
  std::optional<Index::Part> part;
  std::vector<std::string> stored_sources;  ///< the sources that named the shards, in stored form
  std::vector<Source> sources;
  std::vector<std::string> missing;  ///< paths that do not exist and are therefore excluded
  std::vector<std::string> gone;     ///< paths in the old index that the sources no longer name
};

/// Determines size, time and validator of each shard, in order, without reading the shards. Adds
/// paths that do not exist to `missing`, and all others to `named`.
/// Errors: NotFound for a missing remote shard, unless `options` exclude missing shards; kIo;
///   Unsupported; InvalidArgument if `named` already contains a shard; errors of RemoteShards.
std::vector<Rescan> look_at_each(const std::string& index_path, std::span<const std::string> shards,
                                 const BuildOptions& options, DistinctShards& named,
                                 std::vector<std::string>& missing);

/// Throws NotFound if any shard is missing. The text gives the number of missing shards.
/// @param num_shards  number of shards that were looked up, including missing ones.
void require_none_missing(const std::vector<std::string>& missing, std::size_t num_shards,
                          std::string_view remedy);

/// Looks up all shards, and determines which of them have not changed.
/// @param use_old  false to treat all shards as changed.
/// Errors: as build_index; CorruptIndex if the old index is damaged, so that it cannot be used.
BuildInputs look_at_all(const std::string& path, const std::vector<std::string>& shards,
                        const BuildOptions& options, bool use_old = true);

}  // namespace shardwise
