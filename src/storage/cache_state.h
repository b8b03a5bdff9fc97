#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/fork.h"
#include "storage/cache_directory.h"
#include "storage/cache_ledger.h"
#include "storage/cache_locks.h"
#include "storage/cache_metrics.h"
#include "storage/cache_readers.h"
#include "storage/cache_request.h"
#include "storage/cache_room.h"
#include "storage/coming_shard.h"
#include "storage/failed_fetches.h"

// A shard cache has five parts, each with its own mutex and interface:
//
//   CacheLocks     the locks that processes share, and the shards that this process pins
//   CacheReaders   the shards that threads of this process read and fetch
//   CacheRoom      evictions
//   FailedFetches  recent failures of fetches
//   CacheCounts    statistics and the metrics file
//
// shard_cache.cc finds cached shards, and calls shard_fetch.cc for missing ones. cache_inspect.cc
// lists, verifies and removes shards.

namespace shardwise {

namespace detail {

/// Number of bytes per read or write.
inline constexpr std::size_t kCachePieceBytes = std::size_t{1} << 20;

/// Returns the hash128 of a file's bytes. Errors: NotFound, kIo; Cancelled.
/// @param progress  receives the number of bytes read since its last call; may be empty.
Hash128 hash_of_file(const File& file, const CancelToken& cancel,
                     const std::function<void(std::uint64_t bytes)>& progress = nullptr);

}  // namespace detail

class FileSink;

struct ShardCache::Impl : std::enable_shared_from_this<ShardCache::Impl> {
  using Record = detail::CacheDirectory::Record;

  explicit Impl(const ShardCache::Options& wanted);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Errors: Unsupported if the cache is read-only.
  void require_writable(std::string_view what) const;
  std::optional<CachedShard> find(const CacheRequest& request, const std::string& name);
  /// Pins the shard's name. The shard need not exist. Errors: kIo; Cancelled.
  CachedShard pin(const CacheRequest& request, const std::string& name);
  /// Pins the shard's name, and determines how much room the shard needs. Does not make room yet.
  /// @param lock  the lock to fetch the shard.
  std::unique_ptr<ShardFetch::Impl> begin_fetch(detail::ByteLock lock, const CacheRequest& request,
                                                const std::string& name, const NextUseOf& next_use);
  /// Writes the note of a shard. If that fails, the shard has no note.
  void write_note(const std::string& name, const Hash128& shard_hash, std::string_view text) const;

  const ShardCache::Options options;
  const detail::CacheDirectory directory;
  const std::shared_ptr<const Fetchers> fetchers;
  detail::CacheCounts counts;
  detail::CacheLocks locks;
  detail::CacheReaders readers;
  detail::FailedFetches failures;
  detail::CacheRoom room;

 private:
  /// True if the pinned shard with this name matches the request.
  bool is_as_asked(const CacheRequest& request, const std::string& name) const;
  /// Decides whether a shard that other users may have changed can be trusted. Returns false if the
  /// shard fails the index's hashes, or if there are no hashes. If true, `shard` is bound to the
  /// file that was checked.
  /// Errors: StaleIndex if the shard is wrong and the cache is read-only.
  bool is_genuine(const CacheRequest& request, CachedShard& shard);
  /// True if the shard's bytes still match its record. If so, updates the record's quick check.
  bool has_recorded_bytes(const CacheRequest& request, const std::string& name,
                          Record& record) const;
  /// Writes the record of an existing shard. Does nothing if another process is writing it or the
  /// disk is full.
  void renew_record(const std::string& name, const Record& record) const;

  Mutex mutex;
  /// Files that this process has checked, because other users may have changed them.
  std::set<detail::FileIdentity> checked SHARDWISE_GUARDED_BY(mutex);
};

struct CachedShard::Pin {
  Pin(std::shared_ptr<ShardCache::Impl> of, std::string shard, detail::PinTable::Pin taken)
      : cache(std::move(of)), name(std::move(shard)), pin(taken) {}
  ~Pin() {
    const bool was_overflow = overflow_file != nullptr;
    overflow_file.reset();
    overflow.reset();
    if (was_overflow) cache->room.ledger.doubt();  // deleting the file frees its bytes
    cache->locks.pins.unpin(name, pin);
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

  const std::shared_ptr<ShardCache::Impl> cache;
  const std::string name;
  detail::PinTable::Pin pin;
  std::unique_ptr<AtomicFile> overflow_file;  // the shard's file, if it is outside the budget
  std::unique_ptr<detail::LiveCount::Slot> overflow;
};

/// A fetch of one shard into the cache.
struct ShardFetch::Impl {
  /// Properties of the file at its source.
  struct Source {
    std::uint64_t size_bytes = 0;
    Hash128 hash;
    std::string validator;
  };

  CachedShard run();
  CachedShard run_once();
  /// Returns the request that is sent to the fetchers.
  Fetcher::Request source_request() const;
  /// Returns the shard's size in the cache; 0 if it is unknown. Asks the source if necessary.
  std::uint64_t size_wanted() const;
  /// Fetches the shard and checks it. Retries after a wrong shard before it throws.
  Source fetch_checked(FileSink& sink);
  Source transfer(FileSink& sink);
  Source copy_local(FileSink& sink);
  void expand(FileSink& sink, std::string_view compressed, const std::string& name);
  /// Makes room, and creates the temporary file with the shard's final size.
  Room make_room(Urgency urgency, std::uint64_t needed_at = 0, bool may_overflow = false);
  /// Waits for room, with increasing Urgency (next_stage()). If there is still no room, creates the
  /// file outside the budget. Returns false if the caller must read single samples from the source
  /// instead.
  bool find_room();
  /// Creates the file outside the budget, because another version of the shard is in use under the
  /// same name.
  void make_overflow_file();
  void make_file();
  std::unique_ptr<AtomicFile> new_file() const;
  /// Extends the temporary file to this size, and adds the growth to the ledger.
  void grow(std::uint64_t size_bytes);
  /// Truncates the temporary file to the bytes received, and subtracts the rest from the ledger.
  void cut(std::uint64_t size_bytes);
  /// Fetches a compressed shard to a file, expands it, and deletes the file.
  Source fetch_compressed(FileSink& sink);
  Source fetch_to(FileSink& sink);
  void require_source_hash(const Hash128& hash) const;
  detail::CacheRoom::Wanted wanted(std::uint64_t size_bytes) const {
    return {.request = request, .name = name, .size_bytes = size_bytes, .next_use = next_use};
  }
  /// Renames the shard to its final name in the cache, with its record and note.
  CachedShard keep_in_cache(const Source& source, const FileSink& sink);
  CachedShard keep_outside_budget();
  void require_size(std::optional<std::uint64_t> wanted, std::uint64_t size_bytes) const;
  std::optional<std::string> fetch_parts(Fetcher::Request asked, FileSink& sink);
  File& renew_file();

  std::shared_ptr<ShardCache::Impl> cache;
  CacheRequest request;
  std::string name;
  NextUseOf next_use;
  CachedShard pinned;
  detail::ByteLock lock;
  std::uint64_t reserved_bytes = 0;  ///< size of the temporary file, as counted in the ledger
  bool is_overflow = false;          ///< the file is outside the budget
  std::unique_ptr<detail::LiveCount::Slot> overflow = nullptr;
  std::optional<std::chrono::milliseconds> retry_for = {};
  /// Puts the ledger in doubt on destruction, unless the shard has entered the cache.
  struct Uncounted {
    void operator()(const detail::CacheLedger* ledger) const noexcept { ledger->doubt(); }
  };
  std::unique_ptr<const detail::CacheLedger, Uncounted> uncounted = nullptr;
  std::unique_ptr<AtomicFile> file = nullptr;
  bool is_one_stream = false;  // set after a failed attempt to fetch in parts
  /// Tells readers that the fetch has ended, before the file is deleted.
  struct Coming {
    std::shared_ptr<detail::ComingShard> shard = nullptr;
    Coming() = default;
    Coming(Coming&&) noexcept = default;
    Coming& operator=(Coming&&) noexcept = default;
    ~Coming() {
      if (shard) shard->end(false);
    }
    detail::ComingShard* operator->() const noexcept { return shard.get(); }
    detail::ComingShard& operator*() const noexcept { return *shard; }
    explicit operator bool() const noexcept { return shard != nullptr; }
  } coming = {};  // null if readers cannot follow this fetch
};

}  // namespace shardwise
