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
#include "shardwise/base/compression.h"
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

/// A shard that is wanted.
struct CacheRequest {
  /// Of a remote shard, or the path of a local one.
  std::string url;
  /// A file that is the one at `url`, and is read instead of fetching it. Empty: there is none.
  std::string local_copy = {};
  /// The version of it that is wanted: what its source said (SourceFile::validator), or
  /// local_validator(). No other comes, and none is taken from the cache. Empty: whichever it is.
  std::string validator = {};
  /// How the file is compressed at its source; the cache holds it expanded.
  Compression compression = Compression::kNone;
  std::optional<std::uint64_t> size_bytes = {};    ///< as the cache holds it
  std::optional<std::uint64_t> source_bytes = {};  ///< at its source
  std::optional<Hash128> source_hash = {};         ///< hash128 of the file at its source
  bool fetch_again = false;                        ///< what is in the cache will not do
  /// Looks at a shard that was fetched, before it becomes part of the cache; throws if it is wrong.
  std::function<void(const std::string& path)> check = nullptr;
  /// What `check` holds a shard against, as a hash: one in the cache that passed the check of
  /// another is another, and one that passed none is checked. Nothing: it is taken unchecked.
  std::optional<Hash128> checked_as = {};
  /// Ends the call with Cancelled.
  CancelToken cancel = {};
};

/// The validator of a local file.
SHARDWISE_EXPORT std::string local_validator(std::uint64_t size_bytes, std::int64_t mtime_ns);

/// When a shard of the cache is needed next, in slots of an order, counted over its epochs.
struct NextUse {
  enum class Kind : std::uint8_t {
    kUnknown,  ///< the cache knows only when it was used last
    kAt,       ///< at the slot `position`
    kNever,
    kInUse,  ///< when the new shard is needed: it must stay
  };
  Kind kind = Kind::kUnknown;
  std::uint64_t position = 0;
  std::uint64_t shard = 0;  ///< its number, which decides between equals
  /// False: it is needed before the new shard is, so it may not go yet.
  bool may_go_now = true;
};

/// Says it of the shard called `name`, as ShardCache::name_of. Must not call the cache.
using NextUseOf = std::function<NextUse(const std::string& name)>;

/// A shard in the cache that this process uses: it stays while this lives. Movable. After fork()
/// the parent's hold it; see keep().
class SHARDWISE_EXPORT CachedShard {
 public:
  CachedShard();
  ~CachedShard();
  CachedShard(CachedShard&&) noexcept;
  CachedShard& operator=(CachedShard&&) noexcept;

  /// A plain tar, to be opened or mapped; never written to.
  const std::string& path() const noexcept { return path_; }
  bool is_held() const noexcept { return hold_ != nullptr; }
  /// From now on this lives where a child that is forked uses it, too: its copy is a hold of its
  /// own, from the first time on that it asks the cache for a shard.
  void keep() noexcept;
  /// As ShardCache::name_of. REQUIRES: is_held().
  const std::string& name() const noexcept;

 private:
  friend class ShardCache;
  struct Hold;
  CachedShard(std::unique_ptr<Hold> hold, std::string path);
  std::unique_ptr<Hold> hold_;
  std::string path_;
};

/// What `shardwise cache ls` shows of a shard.
struct CacheEntry {
  std::string name;
  std::string url;             ///< without what may be secret; empty if it is not known
  std::string validator = {};  ///< of the version that it is; empty if it is not known
  std::uint64_t size_bytes = 0;
  std::int64_t last_use_ns = 0;      ///< since the Unix epoch
  std::optional<Hash128> hash = {};  ///< of its bytes, when it was fetched
  bool in_use = false;               ///< some process maps it
};

struct CacheCheck {
  std::uint64_t num_shards = 0;
  std::vector<CacheEntry> damaged;   ///< their bytes are not what was fetched
  std::vector<CacheEntry> unknown;   ///< without a record of their hash
  std::vector<std::string> foreign;  ///< file names that are none of the cache's
};

struct CacheRemoval {
  std::uint64_t num_shards = 0;
  std::uint64_t bytes = 0;
  std::uint64_t num_in_use = 0;  ///< that stay, because some process maps them
};

/// A shard cache, opened. A shard is fetched once, however many ask for it; the others wait.
///
/// What is evicted when room is needed: among shards that no process maps, the one whose next use
/// is farthest, where that is known (see NextUseOf; leaves_before() of replacement.h decides);
/// before those the ones of which it is not known, least recently used first. If others filled it
/// beyond this one's budget, it comes down to that when the first shard is asked for, and whenever
/// room is made: in that order, at last also what is needed now and mapped by nobody.
///
/// Threads and processes: internally synchronised. After fork() the child may go on using it; what
/// the parent's threads were fetching stays theirs, and the child waits for it as other processes
/// do.
class SHARDWISE_EXPORT ShardCache {
 public:
  /// Makes the directory (mode 0700) if there is none, and removes what killed processes left.
  /// Errors: InvalidArgument if the directory belongs to another user, others may write to it, or
  /// it holds files and is no cache; VersionMismatch; kIo, kNoSpace.
  static std::shared_ptr<ShardCache> open(const ShardCacheOptions& options);
  ~ShardCache();
  ShardCache(const ShardCache&) = delete;
  ShardCache& operator=(const ShardCache&) = delete;

  const ShardCacheOptions& options() const noexcept;
  /// What a shard is called in the cache.
  static std::string name_of(const CacheRequest& request);

  /// The shard, fetched if it is not there. Nothing is kept of a shard that failed.
  /// Blocks: on the network, and on another process or thread that fetches the same shard.
  /// Errors: FetchError; what `check` throws; CorruptShard (compressed, and damaged); StaleIndex
  ///   (what is at its source is not what was asked for); kNoSpace (larger than the budget, or the
  ///   disk is full); kIo (waited too long); Cancelled.
  CachedShard get(const CacheRequest& request, const NextUseOf& next_use = nullptr);

  /// Room for a shard that will be needed, and the right to fetch it.
  class SHARDWISE_EXPORT Fetch {
   public:
    ~Fetch();
    Fetch(Fetch&&) noexcept;
    Fetch& operator=(Fetch&&) noexcept;
    /// Fetches it. Errors: as get().
    CachedShard run();

   private:
    friend class ShardCache;
    struct Impl;
    explicit Fetch(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
  };
  enum class Ahead : std::uint8_t {
    kFetch,    ///< the caller is to run what came with it
    kPresent,  ///< it is there, or another is fetching it
    /// A shard must go first that is needed still, or is in use; or another waits for room.
    kNotNow,
  };
  /// Begins to fetch a shard ahead, if that costs no shard that is needed sooner. Does not wait.
  /// @param needed_at  the slot at which it is needed.
  /// Errors: as get(), but for what fetching throws.
  Ahead begin_ahead(const CacheRequest& request, std::uint64_t needed_at, const NextUseOf& next_use,
                    std::optional<Fetch>& fetch);

  /// Asked, when room is needed, to let go of the mapping of an idle shard; true if it did. Kept
  /// while `owner` lives; called by any thread, with no lock of the cache's directory but others.
  void add_releaser(std::weak_ptr<void> owner,
                    std::function<bool(const std::string& name)> release);

  ShardCacheStats stats() const;
  /// Of all shards in it, those being fetched included. Cost: O(shards).
  std::uint64_t used_bytes() const;

  /// Sorted by last use, oldest first. Cost: O(shards).
  std::vector<CacheEntry> entries() const;
  /// Reads all shards, and holds them against their hashes.
  CacheCheck verify(const CancelToken& cancel = {}, const ProgressCallback& progress = {}) const;
  /// Removes shards that were not used lately until they take `max_bytes` or less, and those named.
  CacheRemoval prune(std::uint64_t max_bytes);
  /// Removes one shard, unless it is in use.
  bool remove(const std::string& name);

 private:
  friend class CachedShard;
  struct Impl;
  explicit ShardCache(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace shardwise
