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
// shard is identified by its source and its version there. So versions of one shard lie side by
// side, each index gets its own, and the old ones are evicted like all shards that nobody uses.
// Whenever a shard is taken from the cache, its size, time and start are compared with its record;
// where one differs, all of it is read. A shard that has the name but is not the one asked for is
// replaced, but never while somebody uses it: then the right one is fetched to a file of its own.
// The cache deletes nothing but its own files. It leaves a directory of another version as it is
// (VersionMismatch), since processes of that version may be using it.
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
  /// Bytes that the shards in it may take together. While every shard is in use, a process may go
  /// beyond this by what it is using.
  std::uint64_t budget_bytes = std::uint64_t{64} << 30;
  /// A shard that is larger than the budget is fetched to a file of its own, each time, instead of
  /// being an error.
  bool bypass_large = false;
  /// How long get() waits, while no fetch of this process is running, for the preferred victim to
  /// fall out of use before evicting it anyway; at most ten times this in total.
  std::chrono::milliseconds room_timeout{200};
  /// How long to wait for another process that fetches a shard without its file growing.
  std::chrono::milliseconds wait_timeout{120'000};
  /// Fetch remote shards; none: the standard fetchers with their default options.
  std::shared_ptr<const Fetchers> fetchers = nullptr;
  /// Called about once a second while a caller waits for another process that fetches its shard.
  std::function<void(const std::string& url, std::chrono::milliseconds waited)> on_wait = nullptr;
};

/// Counts of what this process did with a cache. Bytes are of shards as they lie in the cache,
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
/// Eviction: when room is needed, shards leave that no process maps. Those whose next use is not
/// known leave first, least recently used first; then the others, farthest next use first (see
/// ShardPrefetcher). If other processes filled the cache beyond this one's budget, it comes down to
/// the budget when the first shard is asked for, and whenever room is made: in that order, and in
/// the end also with shards that are needed now, if nobody maps them.
///
/// Threads and processes: internally synchronised. After fork() the child may go on using it.
/// Fetches of the parent's threads stay the parent's; the child waits for them as other processes
/// do.
class SHARDWISE_EXPORT ShardCache {
 public:
  /// One shard as `shardwise cache ls` shows it.
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
    std::vector<std::string> foreign;  ///< names of files that are not the cache's
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
  /// Bytes of all shards in it, those being fetched included. Cost: O(shards).
  std::uint64_t used_bytes() const;

  /// Sorted by last use, oldest first. Cost: O(shards).
  std::vector<Entry> entries() const;
  /// Reads all shards, and compares them with their hashes.
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

  /// The name of a shard in the cache.
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

  /// Registers `release`, which is asked to unmap an idle shard when room is needed, and returns
  /// true if it did. Kept while `owner` lives. Called on any thread, while the cache makes room: it
  /// must not ask the cache for a shard.
  void add_releaser(std::weak_ptr<void> owner,
                    std::function<bool(const std::string& name)> release);

 private:
  friend class detail::CachedShard;
  struct Impl;
  explicit ShardCache(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace shardwise
