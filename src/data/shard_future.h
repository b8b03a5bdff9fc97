#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "data/cache_simulation.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_futures.h"
#include "storage/cache_request.h"
#include "storage/eviction.h"

namespace shardwise::detail {

/// Shards of an index by their names in the cache; those that are read in place have none.
using CachedNames = std::unordered_map<std::string, std::uint64_t>;

/// The shards that an epoch and the two after it will need, and how far the epoch has come.
/// Threads: any.
class ShardFuture {
 public:
  /// @param user  tells the other users of the cache how far it has come, and brings what they will
  ///              need; may be null.
  ShardFuture(std::shared_ptr<const CachedNames> names, NextUseIndex uses,
              std::shared_ptr<CacheUser> user = nullptr)
      : names_(std::move(names)), uses_(std::move(uses)), user_(std::move(user)) {}

  const NextUseIndex& uses() const noexcept { return uses_; }
  /// All slots before `slot` have been read. It never falls back.
  /// @param tells  the other users of the cache, too, which costs a system call.
  void reach(std::uint64_t slot, bool tells = true) noexcept;
  /// None if it tells nobody.
  const CacheUser* user() const noexcept { return user_.get(); }
  std::uint64_t now() const noexcept { return now_.load(std::memory_order_relaxed); }

  /// The next use of the shard called `name`, as the cache is told it when room is made for one
  /// that is needed from `slot` on. Of a single user the answer does not depend on when it is
  /// asked, but for may_go_now.
  NextUse next_use(const std::string& name, std::uint64_t slot) const;
  /// As next_use(), for `shard` and its next use from now on.
  NextUse next_use_for(std::uint64_t shard, const std::string& name) const;

 private:
  NextUse own_next_use(const std::string& name, std::uint64_t slot) const;

  const std::shared_ptr<const CachedNames> names_;
  const NextUseIndex uses_;
  const std::shared_ptr<CacheUser> user_;
  std::atomic<std::uint64_t> now_{0};
};

}  // namespace shardwise::detail
