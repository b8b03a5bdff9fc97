#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "data/checked_segments.h"
#include "data/shard_future.h"
#include "shardwise/data/dataset.h"
#include "storage/cache_request.h"

namespace shardwise {
namespace detail {

/// What a prefetcher does with a dataset, and users do not.
struct DatasetAccess {
  /// From now on the cache is told this future.
  static void follow(const Dataset& data, std::shared_ptr<const ShardFuture> future);
  /// The cache is no longer told this future; that of another who follows since then stays.
  static void unfollow(const Dataset& data, const ShardFuture* future);
  /// For what reads a dataset's shards in ways of its own.
  static Dataset::Impl& impl(const Dataset& data) noexcept { return *data.impl_; }
  /// Unmaps a shard of the index, if it is mapped and nobody reads it; true if it did. If somebody
  /// reads it, it goes with its last sample.
  /// Errors: OutOfRange.
  static bool close_shard(const Dataset& data, std::uint64_t shard);
  /// The number of the first sample with this key, or nothing. No shard is opened.
  SHARDWISE_EXPORT static std::optional<std::uint64_t> number_of(const Dataset& data,
                                                                 std::string_view key);
  /// The request by which its cache is asked for a shard; nothing if it is read where it lies.
  static std::optional<CacheRequest> cache_request(const Dataset& data, std::uint64_t shard);
  /// The records of all its shards, which all that ask share.
  /// Errors: Unsupported if it was opened lazily.
  SHARDWISE_EXPORT static std::shared_ptr<CheckedSegments> records(const Dataset& data);
};

}  // namespace detail

using detail::DatasetAccess;

}  // namespace shardwise
