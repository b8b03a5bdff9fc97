#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/progress.h"
#include "shardwise/storage/fetcher.h"

namespace shardwise {

// A shard cache: a directory with a byte budget, in which shards that cannot be read where they lie
// (remote ones, compressed ones) are kept as plain tars, shared by all processes of a machine.
//
// docs/formats/cache-directory.md specifies its files, names, records and locks (version 2). A
// shard is known by its source and by its version there, so versions of one shard lie side by side,
// and each index that is read with the cache gets its own; the old ones leave as all do that nobody
// uses. Whenever a shard is taken from the cache, its size, time and start are held against its
// record; where one differs, all of it is read. What lies under a name and is not what is asked for
// is replaced, but never while somebody uses it: then what is asked for is fetched to a file of its
// own. Nothing but the cache's own files is ever deleted, and a directory of another version is
// left as it is (VersionMismatch): processes of that version may be using it.
//
// Locks are freed by the kernel however a process ends. A shard appears by rename, after its bytes
// were checked and synced; a process that is killed leaves at most a temporary file, whose lock is
// free, and which the next one removes.

namespace detail {
class CachedShard;
struct CacheRequest;
struct NextUse;
}  // namespace detail

struct ShardCacheOptions {
  std::string directory;
  /// False: a directory that is not there is NotFound.
  bool create = true;
  /// What the shards in it may take together, bytes. While every shard is in use a process may go
  /// beyond it by what it is using.
  std::uint64_t budget_bytes = std::uint64_t{64} << 30;
  /// A shard that is larger than the budget is fetched to a file of its own, each time, instead of
  /// being an error.
  bool bypass_large = false;
  /// How long a shard that is needed now waits, while no shard comes, for the one that should go
  /// for it and is needed still by work that began before; then that goes. Ten times as long at
  /// most.
  std::chrono::milliseconds room_timeout{200};
  /// How long to wait for another process that fetches a shard without its file growing.
  std::chrono::milliseconds wait_timeout{120'000};
  /// Brings remote shards; none: the standard fetchers with their default options.
  std::shared_ptr<const Fetchers> fetchers = nullptr;
  /// Called about once a second while a caller waits for another process that fetches its shard.
  std::function<void(const std::string& url, std::chrono::milliseconds waited)> on_wait = nullptr;
};

/// What this process did and had done with a cache. Bytes are of shards as they lie in the cache,
/// unless said otherwise.
struct ShardCacheStats {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;         ///< asked for, and not there: fetched, or waited for
  std::uint64_t fetched = 0;        ///< shards fetched by this process, ahead or when asked for
  std::uint64_t fetched_bytes = 0;  ///< of them, as they came from their source
  std::uint64_t waits = 0;          ///< times that another fetched what was asked for
  double wait_seconds = 0;          ///< callers waited for shards, their own fetching included
  std::uint64_t evicted = 0;
  std::uint64_t evicted_bytes = 0;
  std::uint64_t bypassed = 0;  ///< fetched to a file of their own, for want of room
};

/// A shard cache, opened. A shard is fetched once, however many ask for it; the others wait.
///
/// What is evicted when room is needed: among shards that no process maps, the one whose next use
/// is farthest, where that is known (see ShardPrefetcher);
/// before those the ones of which it is not known, least recently used first. If others filled it
/// beyond this one's budget, it comes down to that when the first shard is asked for, and whenever
/// room is made: in that order, at last also what is needed now and mapped by nobody.
///
/// Threads and processes: internally synchronised. After fork() the child may go on using it; what
/// the parent's threads were fetching stays theirs, and the child waits for it as other processes
/// do.
class SHARDWISE_EXPORT ShardCache {
 public:
  /// What `shardwise cache ls` shows of a shard.
  struct Entry {
    std::string name;
    std::string url;             ///< without what may be secret; empty if it is not known
    std::string validator = {};  ///< of the version that it is; empty if it is not known
    std::uint64_t size_bytes = 0;
    std::int64_t last_use_ns = 0;      ///< since the Unix epoch
    std::optional<Hash128> hash = {};  ///< of its bytes, when it was fetched
    bool in_use = false;               ///< some process maps it
  };

  struct Check {
    std::uint64_t num_shards = 0;
    std::vector<Entry> damaged;        ///< their bytes are not what was fetched
    std::vector<Entry> unknown;        ///< without a record of their hash
    std::vector<std::string> foreign;  ///< file names that are none of the cache's
  };

  struct Removal {
    std::uint64_t num_shards = 0;
    std::uint64_t bytes = 0;
    std::uint64_t num_in_use = 0;  ///< that stay, because some process maps them
  };

  /// Makes the directory (mode 0700) if there is none, and removes what killed processes left.
  /// Errors: InvalidArgument if the directory belongs to another user, others may write to it, or
  /// it holds files and is no cache; VersionMismatch; kIo, kNoSpace.
  static std::shared_ptr<ShardCache> open(const ShardCacheOptions& options);
  ~ShardCache();
  ShardCache(const ShardCache&) = delete;
  ShardCache& operator=(const ShardCache&) = delete;

  const ShardCacheOptions& options() const noexcept;

  ShardCacheStats stats() const;
  /// Of all shards in it, those being fetched included. Cost: O(shards).
  std::uint64_t used_bytes() const;

  /// Sorted by last use, oldest first. Cost: O(shards).
  std::vector<Entry> entries() const;
  /// Reads all shards, and holds them against their hashes.
  Check verify(const CancelToken& cancel = {}, const ProgressCallback& progress = {}) const;
  /// Removes shards that were not used lately until they take `max_bytes` or less, and those named.
  Removal prune(std::uint64_t max_bytes);
  /// Removes one shard, unless it is in use.
  bool remove(const std::string& name);

  // For the library itself; src/storage/cache_request.h has the types.

  /// Says when the shard called `name`, as name_of(), is needed next. Must not call the cache.
  using NextUseOf = std::function<detail::NextUse(const std::string& name)>;
  /// Room for a shard that will be needed, and the right to fetch it.
  class Fetch;
  enum class Ahead : std::uint8_t;

  /// What a shard is called in the cache.
  static std::string name_of(const detail::CacheRequest& request);

  /// The shard, fetched if it is not there. Nothing is kept of a shard that failed.
  /// Blocks: on the network, and on another process or thread that fetches the same shard.
  /// Errors: FetchError; what `check` throws; CorruptShard (compressed, and damaged); StaleIndex
  ///   (what is at its source is not what was asked for); kNoSpace (larger than the budget, or the
  ///   disk is full); kIo (waited too long); Cancelled.
  detail::CachedShard get(const detail::CacheRequest& request, const NextUseOf& next_use = nullptr);

  /// Begins to fetch a shard ahead, if that costs no shard that is needed sooner. Does not wait.
  /// @param needed_at  the slot at which it is needed.
  /// Errors: as get(), but for what fetching throws.
  Ahead begin_ahead(const detail::CacheRequest& request, std::uint64_t needed_at,
                    const NextUseOf& next_use, std::optional<Fetch>& fetch);

  /// Asked, when room is needed, to let go of the mapping of an idle shard; true if it did. Kept
  /// while `owner` lives; called by any thread, with no lock of the cache's directory but others.
  void add_releaser(std::weak_ptr<void> owner,
                    std::function<bool(const std::string& name)> release);

 private:
  friend class detail::CachedShard;
  struct Impl;
  explicit ShardCache(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace shardwise
