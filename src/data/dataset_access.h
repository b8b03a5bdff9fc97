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

/// Internal access to a dataset.
struct DatasetAccess {
  /// From now on the cache asks this future.
  static void follow(const Dataset& data, std::shared_ptr<const ShardFuture> future);
  /// The cache stops asking this future. A future that was set later stays.
  static void unfollow(const Dataset& data, const ShardFuture* future);
  /// For code that reads a dataset's shards directly.
  static Dataset::Impl& impl(const Dataset& data) noexcept { return *data.impl_; }
  /// Unmaps a shard of the index if it is mapped and idle; true if it did. A shard in use is
  /// unmapped with its last sample.
  /// Errors: OutOfRange.
  static bool close_shard(const Dataset& data, std::uint64_t shard);
  /// The number of the first sample with this key, or nullopt. No shard is opened.
  SHARDWISE_EXPORT static std::optional<std::uint64_t> number_of(const Dataset& data,
                                                                 std::string_view key);
  /// The cache's request for the shard; nullopt if the shard is read in place.
  static std::optional<CacheRequest> cache_request(const Dataset& data, std::uint64_t shard);
  /// The records of all its shards, shared by all callers.
  /// Errors: Unsupported if it was opened lazily.
  SHARDWISE_EXPORT static std::shared_ptr<CheckedSegments> records(const Dataset& data);
};

}  // namespace detail

using detail::DatasetAccess;

}  // namespace shardwise
