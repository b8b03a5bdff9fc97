#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "data/cache_simulation.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_futures.h"
#include "storage/cache_request.h"
#include "storage/eviction.h"

namespace shardwise::detail {

/// Numbers of shards, by the shards' names in the cache. Shards that are read in place have no
/// name.
using CachedNames = std::unordered_map<std::string, std::uint64_t>;

/// The shards that an epoch and the next two epochs will need, and the progress in the epoch.
/// Threads: any.
class ShardFuture {
 public:
  /// @param user  posts the progress to the cache's other users, and reads their uses.
  ShardFuture(std::shared_ptr<const CachedNames> names, NextUseIndex uses,
              std::shared_ptr<CacheUser> user)
      : names_(std::move(names)), uses_(std::move(uses)), user_(std::move(user)) {}

  const NextUseIndex& uses() const noexcept { return uses_; }
  /// Reports that all slots before `slot` have been read. Ignores a slot before the last reported
  /// one.
  /// @param tells  notify the cache's other users, which costs a system call.
  void reach(std::uint64_t slot, bool tells = true) noexcept;
  const CacheUser& user() const noexcept { return *user_; }
  std::uint64_t now() const noexcept { return now_.load(std::memory_order_relaxed); }

  /// Returns the next use of the shard called `name`. The cache calls this when it makes room for a
  /// shard that is needed from `slot` on. If there are no other users, only may_go_now depends on
  /// the time of the call.
  NextUse next_use(const std::string& name, std::uint64_t slot) const;
  /// Calls next_use() with the slot at which `shard` is needed next, for a cache that makes room
  /// for `shard`.
  NextUse next_use_for(std::uint64_t shard, const std::string& name) const;

 private:
  NextUse own_next_use(const std::string& name, std::uint64_t slot) const;

  const std::shared_ptr<const CachedNames> names_;
  const NextUseIndex uses_;
  const std::shared_ptr<CacheUser> user_;
  std::atomic<std::uint64_t> now_{0};
};

}  // namespace shardwise::detail
