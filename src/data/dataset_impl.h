#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/cancel_scope.h"
#include "base/fork.h"
#include "base/hasher.h"
#include "data/checked_segments.h"
#include "data/claimed_shards.h"
#include "data/early_shards.h"
#include "data/open_shard.h"
#include "data/shard_future.h"
#include "data/shard_reader.h"
#include "index/claimed_index.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/make_remote_access.h"
#include "storage/cache_futures.h"
#include "storage/cache_request.h"
#include "storage/shard_pool.h"

namespace shardwise {

struct Dataset::Impl {
  /// @param claims  of an index that was made of claims; else none.
  Impl(std::shared_ptr<const Index> opened, const Dataset::Options& options,
       std::unique_ptr<detail::ClaimedShards> claims = nullptr)
      : index(std::move(opened)),
        claimed(std::move(claims)),
        access(options.access),
        cache(options.cache),
        cancel(options.cancel),
        max_open_shards(options.max_open_shards),
        early(index, claimed || options.wait_for_whole_shards ? nullptr : options.cache,
              options.cancel),
        reader(index, options.max_open_shards, fetchers_of(options), options.cancel),
        pool(
            index->num_shards(),
            [this](std::uint64_t number) {
              return reader.with_descriptor([&] { return open(number); });
            },
            pool_options(options, [this](std::uint64_t number) { return is_uncached(number); })) {}

  static std::shared_ptr<const Fetchers> fetchers_of(const Dataset::Options& options) {
    if (options.fetchers || !options.cache) return options.fetchers;
    return options.cache->options().fetchers;
  }

  /// Of shards that are given in place of an index.
  static IndexCacheOptions index_cache_of(const Dataset::Options& options) {
    IndexCacheOptions how = options.index_cache;
    if (!how.build.cancel.can_be_cancelled()) how.build.cancel = options.cancel;
    if (!how.build.remote) {
      how.build.remote =
          make_remote_access(fetchers_of(options), /*keep=*/nullptr, how.build.cancel);
    }
    return how;
  }

  static ShardPoolOptions pool_options(const Dataset::Options& options,
                                       std::function<bool(std::uint64_t)> is_dear) {
    ShardPoolOptions pool{.max_shards = options.max_open_shards,
                          .max_bytes = options.max_mapped_bytes};
    if (options.cache) {
      pool.is_dear = std::move(is_dear);
      // What lies outside the budget has a bound of its own: close_uncached().
      pool.max_cheap_bytes = options.cache->options().budget_bytes / 2;
    }
    return pool;
  }

  std::unique_ptr<const detail::OpenShard> open(std::uint64_t number) {
    close_uncached(current_future().get());
    const detail::ShardOpening how{
        .access = access,
        .cache = cache,
        .next_use = cache ? next_use_of(number) : nullptr,
        .cancel = detail::CancelScope::joined(cancel),
        .was_followed = early.has_followed(number),
        .can_read_parts = [this](const Index::Shard& info) { return reader.can_read_parts(info); },
        .require_first_block =
            [this](const Index::Shard& info) { reader.require_first_block(info); }};
    auto shard = claimed ? claimed->open(number, how) : detail::open_shard(index, number, how);
    if (!shard->uncached_name.empty() || shard->cached.is_overflow()) {
      const Lock lock(mutex);
      uncached.insert(number);
    }
    if (shard->cached.is_held()) {
      {
        const Lock lock(mutex);
        cached[shard->cached.name()] = number;
      }
      if (!current_future() && !cache->is_read_only()) keep_to_share(shard->size_bytes());
    }
    return shard;
  }

  /// True for an open shard that the cache had no room for: to open it again is to fetch it, or to
  /// look for room. So the pool closes it after all others.
  bool is_uncached(std::uint64_t number) const {
    const Lock lock(mutex);
    return uncached.contains(number);
  }

  /// Closes idle ones of these, unless this is the time of their use: no other process can make
  /// room of those that lie outside the budget, and for the others there may be room now. Those
  /// beside take half the budget together at most, of all users, where there is more than one: so
  /// it is only of shards that can be read in no other way.
  void close_uncached(const detail::ShardFuture* known) {
    std::set<std::uint64_t> left;
    {
      const Lock lock(mutex);
      left.swap(uncached);
    }
    const std::uint64_t max =
        left.empty() ? 0 : cache->options().budget_bytes / 2 / num_cache_users(known);
    std::uint64_t bytes = 0;
    std::erase_if(left, [&](std::uint64_t number) {
      std::uint64_t size_bytes = 0;
      if (const auto shard = pool.find(number)) {
        if (shard->uncached_name.empty() && !shard->cached.is_overflow()) return true;
        size_bytes = shard->size_bytes();
      } else {
        return true;
      }
      const bool is_in_use = known && known->uses().in_use_until(number, known->now());
      const bool is_too_much = bytes > 0 && size_bytes > max - std::min(max, bytes);
      if ((!is_in_use || is_too_much) && pool.close(number)) return true;
      bytes += size_bytes;
      return false;
    });
    const Lock lock(mutex);
    uncached.merge(left);
  }

  /// Lets go of a shard that samples were read from past the cache, if it is there now.
  void close_if_it_came(std::uint64_t number, detail::ShardHandle<detail::OpenShard>& shard) {
    if (shard->uncached_name.empty() || !CacheAccess::is_there(*cache, shard->uncached_name))
      return;
    shard = {};
    pool.close(number);
    shard = pool.find(number);  // somebody reads from it still, or has opened it anew
  }

  /// How many users the cache has, as far as they tell, with this one.
  std::uint64_t num_cache_users(const detail::ShardFuture* known) {
    if (!known) return require_unknown_user()->num_others() + 1;
    return known->user() == nullptr ? 1 : known->user()->num_others() + 1;
  }

  /// What is known now of the next uses of the cache's shards, for one that reads this shard.
  NextUseOf next_use_of(std::uint64_t number) {
    if (const auto known = current_future()) {
      return [known, number](const std::string& name) { return known->next_use_for(number, name); };
    }
    if (cache->is_read_only()) return nullptr;
    // Of its own uses nothing is known: it goes by those of others.
    return [user = require_unknown_user()](const std::string& name) {
      return user->joint({}, name, 0);
    };
  }

  /// Closes idle shards of a dataset whose order nobody knows, so that all processes together keep
  /// no more mapped than the cache's budget: a shard that is mapped, no other process can evict.
  /// @param size_bytes  of a shard that is about to join the pool.
  void keep_to_share(std::uint64_t size_bytes) {
    const std::uint64_t share = cache->options().budget_bytes / num_cache_users(nullptr);
    while (pool.stats().open_bytes + size_bytes > share && pool.evict()) {
    }
  }

  /// This dataset as a user of the cache of whose order nobody knows.
  std::shared_ptr<detail::CacheUser> require_unknown_user() {
    // The parent's, in a forked child: its file is not the child's. Let go of without the mutex.
    std::shared_ptr<detail::CacheUser> before;
    {
      const Lock lock(mutex);
      if (unknown_user && unknown_process == process_generation()) return unknown_user;
    }
    auto user = std::make_shared<detail::CacheUser>(
        cache->options().directory, std::vector<detail::PostedUse>(),
        detail::UserPace{.began_ns = detail::monotonic_ns()});
    const Lock lock(mutex);
    before = std::exchange(unknown_user, user);
    unknown_process = process_generation();
    return user;
  }

  std::shared_ptr<const detail::ShardFuture> current_future() const {
    const Lock lock(mutex);
    return future;
  }

  /// How many shards one reader of many samples may keep from being evicted: a power of two.
  [[nodiscard]] std::size_t shards_to_hold() const noexcept {
    constexpr std::size_t kMax = 1024;
    const std::size_t share = std::clamp<std::size_t>(max_open_shards / 4, 1, kMax);
    const std::uint64_t all = std::bit_ceil(std::max<std::uint64_t>(index->num_shards(), 1));
    return std::min<std::uint64_t>(std::bit_floor(share), all);
  }

  /// The request by which the cache is asked for a shard; nothing if it is read where it lies.
  [[nodiscard]] std::optional<CacheRequest> cache_request(std::uint64_t number) const {
    return claimed ? claimed->request(number) : detail::cache_request(index, number);
  }

  /// The records of all shards, for what needs no bytes. Errors: Unsupported without an index.
  [[nodiscard]] std::shared_ptr<detail::CheckedSegments> records() {
    IndexAccess::require_records(*index);
    const Lock lock(mutex);
    if (!segments) segments = std::make_shared<detail::CheckedSegments>(index);
    return segments;
  }

  /// The number of a shard that was mapped, by its name in the cache.
  std::optional<std::uint64_t> find_mapped(const std::string& name) const {
    const Lock lock(mutex);
    const auto found = cached.find(name);
    return found == cached.end() ? std::nullopt : std::optional(found->second);
  }
  /// Closes a shard for a cache that needs room.
  bool release(const std::string& name) {
    const bool was_early = early.release(name);
    const auto number = find_mapped(name);
    return (number && pool.close(*number)) || was_early;
  }
  /// True if samples of a shard are held.
  bool holds(const std::string& name) const {
    const auto number = find_mapped(name);
    return number && pool.is_held(*number);
  }

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
  // Open shards that lie in files of their own, or are read past the cache.
  std::set<std::uint64_t> uncached SHARDWISE_GUARDED_BY(mutex);
  std::shared_ptr<const detail::ShardFuture> future SHARDWISE_GUARDED_BY(mutex);
  // What tells others that this dataset reads, though not what; once a shard was opened so.
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

  /// The number in the view of a sample of the index, if it is in it.
  std::optional<std::uint64_t> find(std::uint64_t number) const noexcept {
    const auto at = std::lower_bound(numbers.begin(), numbers.end(), number);
    if (at == numbers.end() || *at != number) return std::nullopt;
    return static_cast<std::uint64_t>(at - numbers.begin());
  }

  const std::vector<std::uint64_t> numbers;
  Hash128 fingerprint;
};

}  // namespace shardwise
