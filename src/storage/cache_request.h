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

/// The wanted shard: its source and its version. CacheAccess::name_of() derives the shard's name
/// from `url`, `compression` and `validator`.
struct ShardSource {
  /// The URL of a remote shard, or the path of a local one.
  std::string url;
  /// A local file with the bytes of `url`, copied instead of fetched; optional.
  std::string local_copy = {};
  /// The wanted version: Fetcher::Stat::validator, or local_validator(). No other version is
  /// fetched or taken from the cache. Empty means any version.
  std::string validator = {};
  /// Compression of the file at its source; the cache stores it expanded.
  Compression compression = Compression::kNone;
  std::optional<std::uint64_t> size_bytes = {};    ///< in the cache
  std::optional<std::uint64_t> source_bytes = {};  ///< at its source
  std::optional<Hash128> source_hash = {};         ///< hash128 of the file at its source
};

/// The checks that a shard must pass before get() returns it.
struct ShardAdmission {
  /// Checks a fetched shard before it becomes part of the cache; throws if it is wrong.
  std::function<void(const std::string& path)> check = nullptr;
  /// Makes the note of a fetched shard that becomes part of the cache. Called after `check` by the
  /// same thread.
  std::function<std::string()> make_note = nullptr;
  /// A hash of the data that `check` compares a shard with. If a cached shard passed a check
  /// against other data, it is the wrong shard. If it passed no check, it is checked now. Without
  /// `checked_as`, cached shards are taken unchecked.
  std::optional<Hash128> checked_as = {};
  bool fetch_again = false;  ///< ignore the shard in the cache
  /// Compares every byte of a cached shard with trusted hashes; throws if it is wrong. Called if
  /// others may have written to the file, when this process first opens it. If null, `check` is
  /// called instead, provided there is `checked_as`.
  std::function<void(const std::string& path, const CancelToken& cancel)> check_content = nullptr;
};

/// A request for a shard.
struct CacheRequest {
  ShardSource source;
  ShardAdmission admission = {};
  /// On cancellation the call throws Cancelled.
  CancelToken cancel = {};
  /// The caller followed the shard while it was fetched (CacheAccess::follow), so it is counted
  /// already.
  bool was_followed = false;
  /// True if the caller can read single samples from the source. Called if there is no room; if
  /// true, get() may return a shard that is not held. Null means false.
  std::function<bool()> may_read_uncached = nullptr;
};

/// The validator of a local file.
SHARDWISE_EXPORT std::string local_validator(std::uint64_t size_bytes, std::int64_t mtime_ns);

/// Says when the shard called `name` (CacheAccess::name_of()) is needed next. Must not call the
/// cache.
using NextUseOf = std::function<NextUse(const std::string& name)>;

/// Bytes that a reader stores beside a shard, so that it need not compute them again. They are
/// mapped, and begin at a multiple of 8 bytes.
struct Note {
  MappedFile file;
  std::string_view bytes;
  Hash128 shard_hash;  ///< hash128 of the shard
};

/// A cached shard that this process uses; it is not evicted while this object lives. Movable. After
/// fork() the parent's objects pin it; see share_with_children().
class SHARDWISE_EXPORT CachedShard {
 public:
  CachedShard();
  ~CachedShard();
  CachedShard(CachedShard&&) noexcept;
  CachedShard& operator=(CachedShard&&) noexcept;

  /// A plain tar, to be opened or mapped; never written to.
  const std::string& path() const noexcept { return path_; }
  /// Maps the very file that was checked, even if its name now has another file.
  /// Errors: as MappedFile::open().
  MappedFile map();
  bool is_pinned() const noexcept { return pin_ != nullptr; }
  /// True if the cache had no room, so the shard is in a separate file that is deleted with this
  /// object.
  bool is_overflow() const noexcept;
  /// Marks this as used by children forked from now on. A child's copy becomes a pin when the child
  /// first asks the cache for a shard.
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
  File checked_;  ///< open until map(), if others may change the shard
};

/// Room for a shard that will be needed, and the lock to fetch it.
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

/// A shard that is read while it is fetched.
struct Followed {
  std::shared_ptr<ComingShard> coming = nullptr;  ///< if null, call get() instead
  CachedShard held = {};                          ///< pins it once it is in the cache
  std::optional<ShardFetch> fetch = {};           ///< to be run by another thread of the caller
};

/// The result of begin_ahead().
enum class Ahead : std::uint8_t {
  kFetch,  ///< the caller must run the ShardFetch
  /// In the cache, or being fetched by another user, or the cache is read-only.
  kPresent,
  /// The shard to evict is still needed or in use; or another fetch waits for room.
  kNotNow,
};

/// The calls of datasets and prefetchers on a cache.
struct SHARDWISE_EXPORT CacheAccess {
  /// The shard's name in the cache.
  static std::string name_of(const CacheRequest& request);

  /// Returns the shard, after fetching it if it is missing. A shard that fails its checks is not
  /// kept.
  ///
  /// Without room, the shard is fetched to a separate file, outside the budget. The returned shard
  /// is not held if samples may be read uncached, and the disk is full or this process already has
  /// a shard outside the budget.
  /// Threads: safe concurrently. Blocks on the network, and on another process or thread that
  ///   fetches the same shard.
  /// Errors: FetchError; errors of `check`; CorruptShard (compressed, and damaged); StaleIndex (the
  ///   source has another version); kNoSpace (larger than the budget, or the disk is full); kIo
  ///   (timeout); Cancelled.
  static CachedShard get(ShardCache& cache, const CacheRequest& request,
                         const NextUseOf& next_use = nullptr);

  /// Follows a plain shard that this process is fetching. The bytes are unverified, so the caller
  /// must be able to check them. Call get() instead if the shard is in the cache, is fetched by
  /// another process, or has no room.
  /// @param may_begin  begin to fetch it if no fetch is running.
  /// Errors: as get(), except for those of the fetch.
  static Followed follow(ShardCache& cache, const CacheRequest& request, const NextUseOf& next_use,
                         bool may_begin);
  /// True if a whole shard has this name. It is unverified. Cost: one stat.
  static bool is_there(const ShardCache& cache, const std::string& name);
  /// Adds to the statistics the time that a caller waited for a shard that it follows.
  static void add_wait(ShardCache& cache, std::chrono::nanoseconds waited);

  /// The note of this very shard; nullopt if missing or damaged, or if the shard is_overflow().
  /// Errors: NoDescriptor, CannotMap.
  /// Cost: reads the note.
  static std::optional<Note> note_of(const CachedShard& shard);
  /// Stores a note beside the shard, replacing any other. It is removed with the shard. Does
  /// nothing if the shard has no record or is_overflow(), or if the disk is full.
  static void write_note(const CachedShard& shard, std::string_view bytes);

  /// Begins to fetch a shard ahead, unless that would evict a shard that is needed sooner. Does not
  /// wait.
  /// @param needed_at  slot at which it is needed.
  /// Errors: as get(), except for those of the fetch.
  static Ahead begin_ahead(ShardCache& cache, const CacheRequest& request, std::uint64_t needed_at,
                           const NextUseOf& next_use, std::optional<ShardFetch>& fetch);

  /// If get() exceeded the budget because shards were in use, evicts shards that are idle now,
  /// until the cache is within the budget.
  /// Cost: O(shards) if the budget is exceeded; else a flag is read.
  static void trim_overrun(ShardCache& cache, const NextUseOf& next_use);

  /// Callbacks for when the cache needs room. Any thread may call them while it makes room, so they
  /// must not ask the cache for a shard.
  struct Releaser {
    /// Unmaps a shard if it is idle, and returns true if it did.
    std::function<bool(const std::string& name)> release;
    /// True if the shard is in use; null means never.
    std::function<bool(const std::string& name)> is_in_use = nullptr;
  };
  /// Registers a releaser until `owner` expires.
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
