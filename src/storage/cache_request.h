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

/// Which shard is meant: where it comes from, and which version of it. CacheAccess::name_of() makes
/// the shard's name of `url`, `compression` and `validator`.
struct ShardSource {
  /// The URL of a remote shard, or the path of a local one.
  std::string url;
  /// A file that is the one at `url`, and is read instead of fetching it. Empty: there is none.
  std::string local_copy = {};
  /// The version of it that is wanted: what its source said (Fetcher::Stat::validator), or
  /// local_validator(). No other comes, and none is taken from the cache. Empty: whichever it is.
  std::string validator = {};
  /// How the file is compressed at its source; the cache holds it expanded.
  Compression compression = Compression::kNone;
  std::optional<std::uint64_t> size_bytes = {};    ///< as the cache holds it
  std::optional<std::uint64_t> source_bytes = {};  ///< at its source
  std::optional<Hash128> source_hash = {};         ///< hash128 of the file at its source
};

/// What a shard must pass before it is given out.
struct ShardAdmission {
  /// Checks a fetched shard before it becomes part of the cache; throws if it is wrong.
  std::function<void(const std::string& path)> check = nullptr;
  /// Makes the note of a fetched shard that becomes part of the cache. Called after `check`, by the
  /// same thread.
  std::function<std::string()> make_note = nullptr;
  /// A hash of what `check` compares a shard with. A shard in the cache that passed a check against
  /// something else is not the one that is asked for; one that passed no check is checked now.
  /// Without it, shards in the cache are taken unchecked.
  std::optional<Hash128> checked_as = {};
  bool fetch_again = false;  ///< what is in the cache will not do
  /// Compares every byte of a shard in the cache with hashes that are not the cache's; throws if it
  /// is wrong. Called where others may have written to it, at its first opening in this process.
  /// Null: there are no such hashes, and `check` is called, if there is `checked_as`.
  std::function<void(const std::string& path, const CancelToken& cancel)> check_content = nullptr;
};

/// A shard that is wanted.
struct CacheRequest {
  ShardSource source;
  ShardAdmission admission = {};
  /// Ends the call with Cancelled.
  CancelToken cancel = {};
  /// The caller followed it while it came (CacheAccess::follow), so it was counted already.
  bool was_followed = false;
  /// Says whether the caller can read single samples from the source; asked where there is no room.
  /// If so, get() may bring nothing: see there. Null: it cannot.
  std::function<bool()> may_read_uncached = nullptr;
};

/// The validator of a local file.
SHARDWISE_EXPORT std::string local_validator(std::uint64_t size_bytes, std::int64_t mtime_ns);

/// Says when the shard called `name`, as CacheAccess::name_of(), is needed next. Must not call the
/// cache.
using NextUseOf = std::function<NextUse(const std::string& name)>;

/// Bytes that a reader keeps beside a shard, so that it need not make them again. Their file is
/// mapped; they begin at a multiple of 8 bytes.
struct Note {
  MappedFile file;
  std::string_view bytes;
  Hash128 shard_hash;  ///< hash128 of the shard
};

/// A shard in the cache that this process uses: it is not evicted while this lives. Movable. After
/// fork() the parent's objects pin it; see share_with_children().
class SHARDWISE_EXPORT CachedShard {
 public:
  CachedShard();
  ~CachedShard();
  CachedShard(CachedShard&&) noexcept;
  CachedShard& operator=(CachedShard&&) noexcept;

  /// A plain tar, to be opened or mapped; never written to.
  const std::string& path() const noexcept { return path_; }
  /// Maps it: the very file that was checked, whatever others put in its place since.
  /// Errors: as MappedFile::open().
  MappedFile map();
  bool is_pinned() const noexcept { return pin_ != nullptr; }
  /// True if it lies in a file of its own, which goes with it: the cache had no room.
  bool is_overflow() const noexcept;
  /// Marks this as used by children that are forked from now on. A child's copy is a pin of its
  /// own, from the time on at which the child first asks the cache for a shard.
  void share_with_children() noexcept;
  /// As CacheAccess::name_of(). REQUIRES: is_pinned().
  const std::string& name() const noexcept;

 private:
  friend class shardwise::ShardCache;
  friend class ShardFetch;
  friend struct CacheAccess;
  struct Pin;
  CachedShard(std::unique_ptr<Pin> pin, std::string path);
  std::unique_ptr<Pin> pin_;
  std::string path_;
  File checked_;  ///< open where others may change the shard, until it is mapped
};

/// Room for a shard that will be needed, and the right to fetch it.
class SHARDWISE_EXPORT ShardFetch {
 public:
  ~ShardFetch();
  ShardFetch(ShardFetch&&) noexcept;
  ShardFetch& operator=(ShardFetch&&) noexcept;
  /// Fetches it. Errors: as CacheAccess::get().
  CachedShard run();

 private:
  friend class shardwise::ShardCache;
  friend struct CacheAccess;
  struct Impl;
  explicit ShardFetch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A shard that is read while it comes.
struct Followed {
  std::shared_ptr<ComingShard> coming = nullptr;  ///< null: it is to be asked for as a whole
  CachedShard held = {};                 ///< keeps it from being evicted, once it is in the cache
  std::optional<ShardFetch> fetch = {};  ///< to be run by another thread of the caller
};

/// What became of a shard that was to be fetched ahead.
enum class Ahead : std::uint8_t {
  kFetch,  ///< the caller is to run what came with it
  /// It is there, or another is fetching it, or the cache is only read.
  kPresent,
  /// A shard must go first that is needed still, or is in use; or another waits for room.
  kNotNow,
};

/// What datasets and prefetchers ask of a cache.
struct SHARDWISE_EXPORT CacheAccess {
  /// The name of a shard in the cache.
  static std::string name_of(const CacheRequest& request);

  /// The shard, fetched if it is not there. Nothing is kept of a shard that failed.
  ///
  /// Without room it is fetched to a file of its own, outside the budget. If the shard may be read
  /// uncached, and this process has one outside the budget already, or the disk is full, then the
  /// returned shard is not held.
  /// Blocks: on the network, and on another process or thread that fetches the same shard.
  /// Errors: FetchError; what `check` throws; CorruptShard (compressed, and damaged); StaleIndex
  ///   (what is at its source is not what was asked for); kNoSpace (larger than the budget, or the
  ///   disk is full); kIo (waited too long); Cancelled.
  static CachedShard get(ShardCache& cache, const CacheRequest& request,
                         const NextUseOf& next_use = nullptr);

  /// Follows a plain shard that this process is fetching, for whoever needs some of its bytes and
  /// can tell whether they are right: they were not checked. Of a shard that is there, that another
  /// process fetches, or that has no room, get() knows more.
  /// @param may_begin  begin to fetch it, if nobody does.
  /// Errors: as get(), but for what fetching throws.
  static Followed follow(ShardCache& cache, const CacheRequest& request, const NextUseOf& next_use,
                         bool may_begin);
  /// True if a whole shard lies under this name; nobody compared it with anything. Cost: a look at
  /// the file.
  static bool is_there(const ShardCache& cache, const std::string& name);
  /// Counts time that a caller waited for a shard that it follows.
  static void add_wait(ShardCache& cache, std::chrono::nanoseconds waited);

  /// The note that was made of the very bytes of this shard. Nothing if there is none that is
  /// intact, or if the shard is in a file of its own. Errors: NoDescriptor, CannotMap.
  /// Cost: reads the note.
  static std::optional<Note> note_of(const CachedShard& shard);
  /// Keeps a note beside the shard, and replaces the one that is there. It goes with the shard.
  /// Nothing is kept of a shard without a record, or in a file of its own, nor if the disk is full.
  static void write_note(const CachedShard& shard, std::string_view bytes);

  /// Begins to fetch a shard ahead, if that costs no shard that is needed sooner. Does not wait.
  /// @param needed_at  the slot at which it is needed.
  /// Errors: as get(), but for what fetching throws.
  static Ahead begin_ahead(ShardCache& cache, const CacheRequest& request, std::uint64_t needed_at,
                           const NextUseOf& next_use, std::optional<ShardFetch>& fetch);

  /// Evicts what get() left beyond the budget because it was in use, and no longer is.
  /// Cost: O(shards) if there is such a shard, else some ns.
  static void trim_overrun(ShardCache& cache, const NextUseOf& next_use);

  /// Whom a cache asks when room is needed. Called on any thread, while it makes room: they must
  /// not ask the cache for a shard.
  struct Releaser {
    /// Unmaps a shard if it is idle, and returns true if it did.
    std::function<bool(const std::string& name)> release;
    /// True if the shard is in use; null: none is.
    std::function<bool(const std::string& name)> is_in_use = nullptr;
  };
  /// Registers one, kept while `owner` lives.
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
