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

/// A shard that is to be read.
struct Rescan {
  ShardPlace place;
  std::string url;  ///< as the index is to store it
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;  ///< of a local file
};

/// A shard whose records another index has.
struct Reuse {
  const ReusableIndex* donor = nullptr;
  /// The donor's, but for `url` and `path`: as the new index is to store it, and as it was named;
  /// and, of a shard that was copied, its time and validator.
  Index::Shard row;
};

/// A shard that is to be put into an index.
using Source = std::variant<Rescan, Reuse>;

const std::string& url_of(const Source& source);
std::uint64_t size_of(const Source& source);
/// The folder that the URLs of all remote ones have in common: see UrlBase.
std::string url_base_of(const std::vector<Source>& sources);

/// True if the shard is known to be still the one that was scanned when it had this row.
bool same_state(const Index::Shard& row, const Rescan& now);

/// A hash of everything that decides the result of scanning a shard.
std::uint64_t scan_options_hash(const Index::Content& content);

/// The inputs of a build: the index that is there, and the shards as they look now.
struct BuildInputs {
  std::unique_ptr<ReusableIndex> old;
  std::optional<Index::Part> part;
  std::vector<std::string>
      stored_sources;  ///< that the shards were named by, as the index keeps them
  std::vector<Source> sources;
  std::vector<std::string> missing;  ///< paths that are not there, and are left out
  std::vector<std::string> gone;     ///< paths that the index has, and were not named again
};

/// Looks at shards, without reading them, in their order. Paths that do not exist are put into
/// `missing`, the others into `named`.
/// Errors: NotFound for a remote shard, unless `options` drop missing ones; kIo; Unsupported;
///   InvalidArgument if a shard is in `named` already; those of RemoteShards.
std::vector<Rescan> look_at_each(const std::string& index_path, std::span<const std::string> shards,
                                 const BuildOptions& options, DistinctShards& named,
                                 std::vector<std::string>& missing);

/// Throws NotFound if any shard is missing, and counts them among those that were looked at.
void require_none_missing(const std::vector<std::string>& missing, std::size_t num_shards,
                          std::string_view remedy);

/// Looks at all shards, and finds those that did not change. Errors: as build_index.
BuildInputs look_at_all(const std::string& path, const std::vector<std::string>& shards,
                        const BuildOptions& options);

}  // namespace shardwise
