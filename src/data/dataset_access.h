#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "data/checked_segments.h"
#include "data/joins.h"
#include "data/shard_future.h"
#include "shardwise/data/dataset.h"
#include "storage/cache_request.h"

namespace shardwise {
namespace detail {

/// Internal functions of a dataset.
struct DatasetAccess {
  /// Sets the future that the dataset's cache uses from now on to decide evictions.
  static void follow(const Dataset& data, std::shared_ptr<const ShardFuture> future);
  /// Removes this future from the dataset. Does nothing if another future has been set since.
  static void unfollow(const Dataset& data, const ShardFuture* future);
  /// Returns the datasets that are joined to this one.
  SHARDWISE_EXPORT static std::span<const std::shared_ptr<const JoinSide>> joins(
      const Dataset& data) noexcept;
  /// Returns the fingerprint of the dataset of which `data` is a view.
  SHARDWISE_EXPORT static const Hash128& whole_fingerprint(const Dataset& data) noexcept;
  /// Does what Dataset::operator[] does, but leaves fields of samples that are not mapped to
  /// SampleAccess::open_field(). Fields of joined datasets are read as a whole.
  /// @param in_parts  names of these fields.
  [[nodiscard]] SHARDWISE_EXPORT static Sample get(const Dataset& data, std::uint64_t sample,
                                                   std::span<const std::string> in_parts);
  /// True if a sample of the index is in the dataset.
  static bool has(const Dataset& data, std::uint64_t number_in_index) noexcept;
  /// True if access to a sample may fetch a shard, because a dataset of the join has a cache.
  SHARDWISE_EXPORT static bool has_cache(const Dataset& data) noexcept;
  /// Returns the shared state, for code that reads a dataset's shards directly.
  static Dataset::Impl& impl(const Dataset& data) noexcept { return *data.impl_; }
  /// True if the dataset usually fetches its samples by ranges. Reading many samples at once then
  /// takes few requests.
  SHARDWISE_EXPORT static bool reads_ranges(const Dataset& data);
  /// Unmaps a shard of the index if it is mapped and idle. Returns true if it was unmapped. A shard
  /// in use is unmapped when its last sample is destroyed.
  /// Errors: OutOfRange.
  static bool close_shard(const Dataset& data, std::uint64_t shard);
  /// Returns the number of the first sample with this key; nullopt if no sample has it. Opens no
  /// shard.
  SHARDWISE_EXPORT static std::optional<std::uint64_t> number_of(const Dataset& data,
                                                                 std::string_view key);
  /// Returns the cache request for a shard; nullopt if the shard is read in place.
  static std::optional<CacheRequest> cache_request(const Dataset& data, std::uint64_t shard);
  /// Returns the records of all shards, which all callers share.
  /// Errors: Unsupported if the dataset was opened lazily.
  SHARDWISE_EXPORT static std::shared_ptr<CheckedSegments> records(const Dataset& data);
};

}  // namespace detail

using detail::DatasetAccess;

}  // namespace shardwise
