#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/compression.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/coming_shard.h"
#include "storage/eviction.h"

namespace shardwise::detail {

/// A requested shard: its source and its version. CacheAccess::name_of() derives the shard's name
/// in the cache from `url`, `compression`, and `validator` or `indexed_as`.
struct ShardSource {
  /// URL of a remote shard, or path of a local shard.
  std::string url;
  /// Path of a local file with the same bytes as `url`; optional. If set, this file is copied
  /// instead of fetching the URL.
  std::string local_copy = {};
  /// The requested version: a Fetcher::Stat::validator or a local_validator(). Other versions are
  /// neither fetched nor taken from the cache. Empty means any version.
  std::string validator = {};
  /// The local_validator() of the file that was indexed. If `validator` is empty, this value is
  /// part of the shard's name in the cache. A copy that was cached before the shard was indexed
  /// again is therefore not used.
  std::string indexed_as = {};
  /// Compression of the file at its source. The cache stores the file decompressed.
  Compression compression = Compression::kNone;
  std::optional<std::uint64_t> size_bytes = {};    ///< size in the cache, decompressed
  std::optional<std::uint64_t> source_bytes = {};  ///< size at the source
  std::optional<Hash128> source_hash = {};         ///< hash128 of the file at the source
};

/// The checks that a shard must pass before get() returns it.
struct ShardAdmission {
  /// Checks a fetched shard before it enters the cache. Throws if the shard is wrong.
  std::function<void(const std::string& path)> check = nullptr;
  /// Makes the note of a fetched shard that enters the cache. Called after `check`, by the same
  /// thread.
  std::function<std::string()> make_note = nullptr;
  /// Hash of the reference data of `check`. A cached shard that passed a check against other data
  /// is treated as wrong. A cached shard that has not been checked yet is checked first. If this is
  /// nullopt, cached shards are returned unchecked.
  std::optional<Hash128> checked_as = {};
  bool fetch_again = false;  ///< fetch the shard even if it is cached
  /// Compares every byte of a cached shard with trusted hashes. Throws if the shard is wrong.
  /// Called when this process first opens a file that other users may have written. If this is
  /// null, `check` is called instead, provided that `checked_as` has a value.
  std::function<void(const std::string& path, const CancelToken& cancel)> check_content = nullptr;
};

/// A request for a shard.
struct CacheRequest {
  ShardSource source;
  ShardAdmission admission = {};
  /// When this token is cancelled, the call throws Cancelled.
  CancelToken cancel = {};
  /// The caller has followed the shard during its fetch (CacheAccess::follow), so the statistics
  /// already count the request.
  bool was_followed = false;
  /// Returns true if the caller can read single samples from the source. Called if the cache has no
  /// room for the shard. If it returns true, get() may return an unpinned shard. Null means false.
  std::function<bool()> may_read_uncached = nullptr;
};

/// The validator of a local file with this size and modification time.
SHARDWISE_EXPORT std::string local_validator(std::uint64_t size_bytes, std::int64_t mtime_ns);

/// Returns when the shard called `name` (CacheAccess::name_of()) is needed next. Must not call the
/// cache.
using NextUseOf = std::function<NextUse(const std::string& name)>;

/// A note: data that a reader has computed from a shard and stored next to it for reuse. The data
/// is mapped, and begins at a multiple of 8 bytes.
struct Note {
  MappedFile file;
  std::string_view bytes;
  Hash128 shard_hash;  ///< hash128 of the shard that the note belongs to
};

/// A cached shard in use by this process. The shard is not evicted while this object exists.
/// Movable. After fork(), the parent's objects continue to pin the shard; see
/// share_with_children().
class SHARDWISE_EXPORT CachedShard {
 public:
  CachedShard();
  ~CachedShard();
  CachedShard(CachedShard&&) noexcept;
  CachedShard& operator=(CachedShard&&) noexcept;

  /// Path of an uncompressed tar file. Open or map it; never write to it.
  const std::string& path() const noexcept { return path_; }
  /// Maps the file that was checked, even if its path now refers to another file.
  /// Errors: as MappedFile::open().
  MappedFile map();
  bool is_pinned() const noexcept { return pin_ != nullptr; }
  /// True if the cache had no room. The shard is then a separate file, which is deleted with this
  /// object.
  bool is_overflow() const noexcept;
  /// Lets children forked from now on use this shard. A child's copy pins the shard once the child
  /// first requests a shard from the cache.
  void share_with_children() noexcept;
  /// The shard's CacheAccess::name_of(). REQUIRES: is_pinned().
  const std::string& name() const noexcept;

 private:
  friend class shardwise::ShardCache;
  friend class ShardFetch;
  friend struct CacheAccess;
  struct Pin;
  CachedShard(std::unique_ptr<Pin> pin, std::string path);
  std::unique_ptr<Pin> pin_;
  std::string path_;
  File checked_;  ///< kept open until map(), if other users may change the shard
};

/// Room in the cache for one shard, and the lock to fetch it.
class SHARDWISE_EXPORT ShardFetch {
 public:
  ~ShardFetch();
  ShardFetch(ShardFetch&&) noexcept;
  ShardFetch& operator=(ShardFetch&&) noexcept;
  /// Fetches the shard. Errors: as CacheAccess::get().
  CachedShard run();

 private:
  friend class shardwise::ShardCache;
  friend struct CacheAccess;
  struct Impl;
  explicit ShardFetch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The result of CacheAccess::follow().
struct Followed {
  /// The shard being fetched; if null, call get() instead.
  std::shared_ptr<ComingShard> coming = nullptr;
  CachedShard held = {};  ///< the pinned shard, once it is in the cache
  /// A fetch that another thread of the caller must run.
  std::optional<ShardFetch> fetch = {};
};

/// The result of CacheAccess::begin_ahead().
enum class Ahead : std::uint8_t {
  kFetch,  ///< the caller must run the ShardFetch
  /// The shard is cached, or another user is fetching it, or the cache is read-only.
  kPresent,
  /// The shard to evict is still needed or in use, or another fetch is waiting for room.
  kNotNow,
};

/// The cache functions that datasets and prefetchers call.
struct SHARDWISE_EXPORT CacheAccess {
  /// Returns the shard's name in the cache.
  static std::string name_of(const CacheRequest& request);

  /// Returns the shard. Fetches it first if it is missing. A shard that fails its checks is not
  /// stored.
  ///
  /// If there is no room, the shard is fetched to a separate file outside the budget. Exception: if
  /// the caller may read samples uncached, and the disk is full or this process already has a shard
  /// outside the budget, the returned shard is not pinned.
  /// Threads: safe concurrently. Blocks on the network, and on another process or thread that
  ///   fetches the same shard.
  /// Errors: FetchError; errors of `check`; CorruptShard (compressed, and damaged); StaleIndex (the
  ///   source has another version); kNoSpace (larger than the budget, or the disk is full); kIo
  ///   (timeout); Cancelled.
  static CachedShard get(ShardCache& cache, const CacheRequest& request,
                         const NextUseOf& next_use = nullptr);

  /// Follows an uncompressed shard while this process fetches it. The bytes are unverified, so the
  /// caller must be able to check them. If the shard is cached already, or another process is
  /// fetching it, or there is no room, the result tells the caller to call get() instead.
  /// @param may_begin  start fetching the shard if no fetch is running.
  /// Errors: as get(), except for those of the fetch.
  static Followed follow(ShardCache& cache, const CacheRequest& request, const NextUseOf& next_use,
                         bool may_begin);
  /// True if a complete shard with this name exists. The shard is not verified. Cost: one stat.
  static bool is_there(const ShardCache& cache, const std::string& name);
  /// Adds to the statistics the time that a caller waited for a shard that it follows.
  static void add_wait(ShardCache& cache, std::chrono::nanoseconds waited);

  /// Returns the note of this shard; nullopt if the note is missing or damaged, or if the shard
  /// is_overflow().
  /// Errors: NoDescriptor, CannotMap.
  /// Cost: reads the note.
  static std::optional<Note> note_of(const CachedShard& shard);
  /// Stores a note for the shard, and replaces any existing note. The note is removed together with
  /// the shard. Does nothing if the shard has no record or is_overflow(), or if the disk is full.
  static void write_note(const CachedShard& shard, std::string_view bytes);

  /// Starts fetching a shard ahead of its use, unless that would evict a shard that is needed
  /// sooner. Does not block.
  /// @param needed_at  slot at which the shard is needed.
  /// Errors: as get(), except for those of the fetch.
  static Ahead begin_ahead(ShardCache& cache, const CacheRequest& request, std::uint64_t needed_at,
                           const NextUseOf& next_use, std::optional<ShardFetch>& fetch);

  /// Evicts idle shards until the cache is within its budget, if get() exceeded the budget because
  /// shards were in use.
  /// Cost: O(shards) if the budget is exceeded; otherwise one read of a flag.
  static void trim_overrun(ShardCache& cache, const NextUseOf& next_use);

  /// Callbacks that the cache calls when it needs room. Any thread that makes room may call them,
  /// so they must not request shards from the cache.
  struct Releaser {
    /// Unmaps a shard if it is idle. Returns true if it was unmapped.
    std::function<bool(const std::string& name)> release;
    /// Returns true if the shard is in use. Null means never.
    std::function<bool(const std::string& name)> is_in_use = nullptr;
  };
  /// Registers a releaser. It is unregistered when `owner` expires.
  static void add_releaser(ShardCache& cache, std::weak_ptr<void> owner, Releaser releaser);
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::Ahead;
using detail::CacheAccess;
using detail::CachedShard;
using detail::CacheRequest;
using detail::Followed;
using detail::local_validator;
using detail::NextUseOf;
using detail::Note;
using detail::ShardAdmission;
using detail::ShardFetch;
using detail::ShardSource;

}  // namespace shardwise
