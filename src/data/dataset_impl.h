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
#include "data/shard_future.h"
#include "data/shard_reader.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/dataset.h"
#include "storage/cache_futures.h"
#include "storage/cache_request.h"
#include "storage/shard_pool.h"

namespace shardwise {

/// State that a dataset and its copies share. dataset_shards.cc opens and closes shards.
/// dataset_future.cc knows when they are needed next.
struct Dataset::Impl {
  /// @param claims  set if the index was made of a descriptor's claims; null otherwise.
  Impl(std::shared_ptr<const Index> opened, const Dataset::Options& options,
       std::unique_ptr<detail::ClaimedShards> claims = nullptr);

  /// Options of an index that is built for shards given in its place.
  static IndexCacheOptions index_cache_of(const Dataset::Options& options);

  // dataset_shards.cc:

  std::unique_ptr<const detail::OpenShard> open(std::uint64_t number);
  /// Opens the shard again from the cache, if it was read uncached and is in the cache now.
  void reopen_if_cached(std::uint64_t number, detail::ShardHandle<detail::OpenShard>& shard);
  /// Closes idle uncached shards that `known` does not use now, or that exceed this user's share of
  /// half the budget. Other processes cannot evict those outside the budget, and the cache may have
  /// room for the rest.
  void close_uncached(const detail::ShardFuture* known);
  /// Closes idle shards of a dataset with an unknown order, so that all processes together map at
  /// most the cache's budget. No other process can evict a mapped shard.
  /// @param size_bytes  of a shard that is about to join the pool.
  void trim_to_share(std::uint64_t size_bytes);
  /// Closes a shard because the cache needs room. Returns true if it was open and idle.
  bool release(const std::string& name);
  /// True if samples of the shard are in use.
  bool is_in_use(const std::string& name) const;
  /// The number of a mapped shard, by its name in the cache.
  std::optional<std::uint64_t> find_mapped(const std::string& name) const;
  /// The number of shards that one reader of many samples may pin; a power of two.
  [[nodiscard]] std::size_t max_pinned_shards() const noexcept;
  /// The cache request for a shard; nothing if the shard is read where it is.
  [[nodiscard]] std::optional<CacheRequest> cache_request(std::uint64_t number) const;
  /// The records of all shards, for callers that need no bytes.
  /// Errors: Unsupported without an index.
  [[nodiscard]] std::shared_ptr<detail::CheckedSegments> records();

  // dataset_future.cc:

  /// The next uses of the cache's shards, as known now, for a reader of this shard.
  NextUseOf next_use_of(std::uint64_t number);
  /// The number of the cache's users, with this one, as far as they have posted themselves.
  std::uint64_t num_cache_users(const detail::ShardFuture* known);
  /// This dataset as a cache user with an unknown order.
  std::shared_ptr<detail::CacheUser> require_unknown_user();
  std::shared_ptr<const detail::ShardFuture> current_future() const;

  const std::shared_ptr<const Index> index;
  const std::unique_ptr<detail::ClaimedShards> claimed;
  const Dataset::Access access;
  const std::shared_ptr<ShardCache> cache;
  const CancelToken cancel;
  const std::size_t max_open_shards;
  detail::EarlyShards early;
  detail::ShardReader reader;
  mutable Mutex mutex;
  // Shards that were mapped, by their names in the cache.
  std::unordered_map<std::string, std::uint64_t> cached SHARDWISE_GUARDED_BY(mutex);
  // Open shards that are separate files, or are read uncached.
  std::set<std::uint64_t> uncached SHARDWISE_GUARDED_BY(mutex);
  std::shared_ptr<const detail::ShardFuture> future SHARDWISE_GUARDED_BY(mutex);
  // Posts to other users that this dataset reads; null until it opens a shard in an unknown order.
  std::shared_ptr<detail::CacheUser> unknown_user SHARDWISE_GUARDED_BY(mutex);
  std::uint64_t unknown_process SHARDWISE_GUARDED_BY(mutex) = 0;                  // that made it
  std::shared_ptr<detail::CheckedSegments> segments SHARDWISE_GUARDED_BY(mutex);  // once needed
  ShardPool<detail::OpenShard> pool;  // last: its shards use all the others
};

/// The samples of a view: their numbers in the index, ascending.
struct Dataset::Selection {
  Selection(const Index& index, std::vector<std::uint64_t> samples) : numbers(std::move(samples)) {
    Hasher128 hasher;
    hasher.update_u64(index.fingerprint().high);
    hasher.update_u64(index.fingerprint().low);
    hasher.update(
        {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::uint64_t)});
    fingerprint = hasher.digest();
  }

  /// Returns the number in the view of a sample of the index, or nothing if it is not in the view.
  std::optional<std::uint64_t> find(std::uint64_t number) const noexcept {
    const auto at = std::lower_bound(numbers.begin(), numbers.end(), number);
    if (at == numbers.end() || *at != number) return std::nullopt;
    return static_cast<std::uint64_t>(at - numbers.begin());
  }

  const std::vector<std::uint64_t> numbers;
  Hash128 fingerprint;
};

}  // namespace shardwise
