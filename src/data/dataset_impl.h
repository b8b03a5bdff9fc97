#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "base/hasher.h"
#include "data/checked_segments.h"
#include "data/claimed_shards.h"
#include "data/early_shards.h"
#include "data/open_shard.h"
#include "data/range_reader.h"
#include "data/shard_future.h"
#include "data/shard_reader.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/dataset.h"
#include "storage/cache_futures.h"
#include "storage/cache_request.h"
#include "storage/shard_pool.h"

namespace shardwise {

/// State that a dataset and its copies share. dataset_shards.cc opens and closes shards.
/// dataset_future.cc determines when they are needed next.
struct Dataset::Impl {
  /// @param claims  set if the index was made from a descriptor's claims; otherwise null.
  Impl(std::shared_ptr<const Index> opened, const Dataset::Options& options,
       std::unique_ptr<detail::ClaimedShards> claims = nullptr);

  /// Returns the options for building an index, if the dataset is opened from shards instead of an
  /// index.
  static IndexCacheOptions index_cache_of(const Dataset::Options& options);

  // Defined in dataset_shards.cc:

  std::unique_ptr<const detail::OpenShard> open(std::uint64_t number);
  /// True if samples of the shard are fetched by ranges: with Access::kRange, or because the cache
  /// had no room for the shard.
  bool is_ranged(std::uint64_t number);
  /// If `shard` was opened uncached, and is in the cache by now, replaces it with the cached shard.
  void reopen_if_cached(std::uint64_t number, detail::ShardHandle<detail::OpenShard>& shard);
  /// Closes idle shards that are outside the cache's budget or are read uncached. Closes those that
  /// `known` does not use now, and those that exceed this user's share of half the budget. This is
  /// needed because other processes cannot evict a shard outside the budget, and because an
  /// uncached shard may fit in the cache by now.
  void close_uncached(const detail::ShardFuture* known);
  /// Closes idle shards of a dataset whose order is unknown. All processes together then map at
  /// most the cache's budget. This matters because other processes cannot evict mapped shards.
  /// @param size_bytes  size of a shard that is about to be added to the pool.
  void trim_to_share(std::uint64_t size_bytes);
  /// Closes a shard because the cache needs room. Returns true if the shard was open and idle.
  bool release(const std::string& name);
  /// True if samples of the shard are in use.
  bool is_in_use(const std::string& name) const;
  /// Returns the number of the mapped shard with this name in the cache.
  std::optional<std::uint64_t> find_mapped(const std::string& name) const;
  /// Returns the number of shards that one reader of many samples may pin; a power of two.
  [[nodiscard]] std::size_t max_pinned_shards() const noexcept;
  /// Returns the cache request for a shard; nullopt if the shard is read in place.
  [[nodiscard]] std::optional<CacheRequest> cache_request(std::uint64_t number) const;
  /// Returns the records of all shards, for callers that need no sample data.
  /// Errors: Unsupported without an index.
  [[nodiscard]] std::shared_ptr<detail::CheckedSegments> records();

  // Defined in dataset_future.cc:

  /// Returns the function that tells the cache when its shards are needed next, for a reader of
  /// shard `number`. It uses the future that is known at this call.
  NextUseOf next_use_of(std::uint64_t number);
  /// Returns the number of users of the cache that have posted their uses, including this one.
  std::uint64_t num_cache_users(const detail::ShardFuture* known);
  /// Returns this dataset's entry as a user with an unknown order. Creates it if necessary.
  std::shared_ptr<detail::CacheUser> require_unknown_user();
  std::shared_ptr<const detail::ShardFuture> current_future() const;

  const std::shared_ptr<const Index> index;
  const std::unique_ptr<detail::ClaimedShards> claimed;
  const Dataset::Access access;
  const std::shared_ptr<ShardCache> cache;
  const CancelToken cancel;
  const std::size_t max_open_shards;
  detail::EarlyShards early;
  detail::ShardReader reader;  // of local shards
  detail::RangeReader ranges;  // of remote shards
  mutable Mutex mutex;
  // Shards that were mapped: their numbers, by their names in the cache.
  std::unordered_map<std::string, std::uint64_t> cached SHARDWISE_GUARDED_BY(mutex);
  // Open shards that are outside the cache's budget or are read uncached.
  std::set<std::uint64_t> uncached SHARDWISE_GUARDED_BY(mutex);
  std::shared_ptr<const detail::ShardFuture> future SHARDWISE_GUARDED_BY(mutex);
  // Tells other users that this dataset reads the cache. Null until the dataset opens a shard
  // without a known order.
  std::shared_ptr<detail::CacheUser> unknown_user SHARDWISE_GUARDED_BY(mutex);
  // Process that created unknown_user.
  std::uint64_t unknown_process SHARDWISE_GUARDED_BY(mutex) = 0;
  // Null until needed.
  std::shared_ptr<detail::CheckedSegments> segments SHARDWISE_GUARDED_BY(mutex);
  ShardPool<detail::OpenShard> pool;  // last member, because its shards use all others
};

/// The samples of a view, as ascending numbers of the index.
struct Dataset::Selection {
  /// @param whole  fingerprint of all samples.
  Selection(const Hash128& whole, std::vector<std::uint64_t> samples)
      : numbers(std::move(samples)) {
    Hasher128 hasher;
    hasher.update_u64(whole.high);
    hasher.update_u64(whole.low);
    hasher.update(
        {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::uint64_t)});
    fingerprint = hasher.digest();
  }

  /// Converts a sample's number in the index to its number in the view; nullopt if the view does
  /// not contain it.
  std::optional<std::uint64_t> find(std::uint64_t number) const noexcept {
    const auto at = std::lower_bound(numbers.begin(), numbers.end(), number);
    if (at == numbers.end() || *at != number) return std::nullopt;
    return static_cast<std::uint64_t>(at - numbers.begin());
  }

  const std::vector<std::uint64_t> numbers;
  Hash128 fingerprint;
};

}  // namespace shardwise
