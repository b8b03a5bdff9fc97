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

/// The remote shards of a descriptor whose claims number the samples (Dataset::open_lazily).
///
/// A scan finds the members when a shard is fetched. The result is stored beside the shard in the
/// cache, as its note (docs/formats/cache-directory.md), so each shard is scanned once, by the
/// process that fetches it. It is checked against the claims before the shard becomes part of the
/// cache. If other bytes of the shard were read before, the call throws StaleIndex: within one
/// dataset a sample never changes.
///
/// Threads: safe concurrently.
class ClaimedShards {
 public:
  /// @param index       made of the claims.
  /// @param descriptor  its path or URL.
  /// @param shards      those of the index, in order.
  ClaimedShards(std::shared_ptr<const Index> index, std::string descriptor,
                std::vector<WidsDescriptor::Shard> shards);

  /// The cache's request for a shard. Valid while this object lives.
  [[nodiscard]] CacheRequest request(std::uint64_t shard) const;

  /// Opens a shard with its records checked. A cached shard from others that does not match the
  /// descriptor's claims is fetched again.
  /// REQUIRES: there is a cache.
  /// Errors: Mismatch (it does not match the claims); StaleIndex (it changed); CorruptShard and
  ///   Unsupported, as build_index; errors of CacheAccess::get.
  std::unique_ptr<const OpenShard> open(std::uint64_t shard, const ShardOpening& how);

 private:
  /// The content of a note. Points into its text.
  struct Records {
    SegmentView segment;
    Hash128 header_hash;
  };

  CacheRequest request(std::uint64_t shard, std::shared_ptr<std::string> scanned) const;
  std::string scan(std::uint64_t shard, const std::string& path, const CancelToken& cancel) const;
  std::optional<Records> read(std::string_view text, std::uint64_t shard_bytes) const;
  void add_records(OpenShard& to, std::uint64_t shard, std::string scanned,
                   const CancelToken& cancel);
  /// The shard when it was first opened.
  struct Seen {
    Hash128 header_hash;
    std::optional<Hash128> shard_hash;  ///< of all bytes, if known
  };
  void require_same(std::uint64_t shard, const Seen& now);

  const std::shared_ptr<const Index> index_;
  const std::string descriptor_;
  const std::vector<WidsDescriptor::Shard> shards_;
  const std::uint64_t made_by_;  // hash of the rules that determine a note
  Mutex mutex_;
  std::unordered_map<std::uint64_t, Seen> seen_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
