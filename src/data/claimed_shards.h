#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fork.h"
#include "data/open_shard.h"
#include "index/offset_table.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/wids_descriptor.h"
#include "storage/cache_request.h"

namespace shardwise::detail {

/// The remote shards of a descriptor, for a dataset whose samples are numbered by the descriptor's
/// claims (Dataset::open_lazily).
///
/// When a shard is fetched, a scan finds its members. The result is checked against the claims
/// before the shard enters the cache, and is stored in the cache as the shard's note
/// (docs/formats/cache-directory.md). Each shard is therefore scanned once, by the process that
/// fetches it. If this object has opened the shard before with other bytes, open() throws
/// StaleIndex, so a sample never changes within one dataset.
///
/// Threads: safe concurrently.
class ClaimedShards {
 public:
  /// @param index       index made of the claims.
  /// @param descriptor  path or URL of the descriptor.
  /// @param shards      the descriptor's shards, in the order of the index.
  ClaimedShards(std::shared_ptr<const Index> index, std::string descriptor,
                std::vector<WidsDescriptor::Shard> shards);

  /// Returns the cache request for a shard. It is valid while this object exists.
  [[nodiscard]] CacheRequest request(std::uint64_t shard) const;

  /// Opens a shard and checks its records. A cached shard that another user stored, and that does
  /// not match the descriptor's claims, is fetched again.
  /// REQUIRES: the dataset has a cache.
  /// Errors: Mismatch if the shard does not match the claims; StaleIndex if it has changed;
  ///   CorruptShard and Unsupported, as build_index; errors of CacheAccess::get.
  std::unique_ptr<const OpenShard> open(std::uint64_t shard, const ShardOpening& how);

 private:
  /// The parsed content of a note. Refers to the note's text.
  struct Records {
    SegmentView segment;
    Hash128 header_hash;
  };

  CacheRequest request(std::uint64_t shard, std::shared_ptr<std::string> scanned,
                       const CancelToken& cancel) const;
  std::string scan(std::uint64_t shard, const std::string& path, const CancelToken& cancel) const;
  std::optional<Records> read(std::string_view text, std::uint64_t shard_bytes) const;
  void add_records(OpenShard& to, std::uint64_t shard, std::string scanned,
                   const CancelToken& cancel);
  /// Hashes of a shard, from its first opening.
  struct Seen {
    Hash128 header_hash;
    std::optional<Hash128> shard_hash;  ///< hash of all bytes, if known
  };
  void require_same(std::uint64_t shard, const Seen& now);

  const std::shared_ptr<const Index> index_;
  const std::string descriptor_;
  const std::vector<WidsDescriptor::Shard> shards_;
  const std::uint64_t made_by_;  // hash of the rules that determine a note's content
  Mutex mutex_;
  std::unordered_map<std::uint64_t, Seen> seen_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
