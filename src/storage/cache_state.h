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

// A shard cache has five parts, each with a mutex and an interface of its own:
//
//   CacheLocks     the locks that processes share, and which shards this process pins
//   CacheReaders   what the threads of this process read and fetch
//   CacheRoom      what is evicted, and when
//   FailedFetches  what fetches failed with
//   CacheCounts    statistics and the metrics file
//
// shard_cache.cc finds a shard, or has it fetched by shard_fetch.cc; cache_inspect.cc lists,
// verifies and removes shards.

namespace shardwise {

namespace detail {

/// Bytes that are read or written at once.
inline constexpr std::size_t kCachePieceBytes = std::size_t{1} << 20;

/// hash128 of a file's bytes. Errors: NotFound, kIo; Cancelled.
/// @param progress  is given how many bytes were read now; may be empty.
Hash128 hash_of_file(const File& file, const CancelToken& cancel,
                     const std::function<void(std::uint64_t bytes)>& progress = nullptr);

}  // namespace detail

class FileSink;

struct ShardCache::Impl : std::enable_shared_from_this<ShardCache::Impl> {
  using Record = detail::CacheDirectory::Record;

  explicit Impl(const ShardCache::Options& wanted);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Throws for what a cache that is only read cannot do. Errors: Unsupported.
  void require_writable(std::string_view what) const;
  std::optional<CachedShard> find(const CacheRequest& request, const std::string& name);
  /// Pins the shard, whether it is there or not. Errors: kIo; Cancelled.
  CachedShard pin(const CacheRequest& request, const std::string& name);
  /// Pins the shard's name, and finds out how much room it takes. Makes none yet.
  /// @param lock  the one to fetch the shard.
  std::unique_ptr<ShardFetch::Impl> begin_fetch(detail::ByteLock lock, const CacheRequest& request,
                                                const std::string& name, const NextUseOf& next_use);
  /// Writes the note of a shard; if that fails, the shard has none.
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
  /// Compares the pinned shard under the name with what is known of the wanted one.
  bool is_as_asked(const CacheRequest& request, const std::string& name) const;
  /// False if others may have changed the shard or its record, and it is not what the index has, or
  /// nothing tells. Where they may, `shard` is bound to the file that was checked.
  /// Errors: StaleIndex if it is wrong, and no right one can be fetched.
  bool is_genuine(const CacheRequest& request, CachedShard& shard);
  /// Whether the shard's bytes are still those of its record, which is brought up to date.
  bool has_recorded_bytes(const CacheRequest& request, const std::string& name,
                          Record& record) const;
  /// Writes the record of a shard that is there, if no other process does and the disk has room.
  void renew_record(const std::string& name, const Record& record) const;

  Mutex mutex;
  /// Files that others may change, and that were checked by this process.
  std::set<detail::FileIdentity> checked SHARDWISE_GUARDED_BY(mutex);
};

struct CachedShard::Pin {
  Pin(std::shared_ptr<ShardCache::Impl> of, std::string shard, detail::PinTable::Pin taken)
      : cache(std::move(of)), name(std::move(shard)), pin(taken) {}
  ~Pin() {
    const bool was_overflow = overflow_file != nullptr;
    overflow_file.reset();
    overflow.reset();
    if (was_overflow) cache->room.ledger.doubt();  // its bytes are gone
    cache->locks.pins.unpin(name, pin);
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

  const std::shared_ptr<ShardCache::Impl> cache;
  const std::string name;
  detail::PinTable::Pin pin;
  std::unique_ptr<AtomicFile> overflow_file;  // the shard, if there was no room for it
  std::unique_ptr<detail::LiveCount::Slot> overflow;
};

/// A shard that is being fetched.
struct ShardFetch::Impl {
  /// The file at its source.
  struct Source {
    std::uint64_t size_bytes = 0;
    Hash128 hash;
    std::string validator;
  };

  CachedShard run();
  CachedShard run_once();
  /// What the fetchers are asked for.
  Fetcher::Request source_request() const;
  /// How large the shard will be in the cache; 0 means: unknown. Asks the source if need be.
  std::uint64_t size_wanted() const;
  /// Fetches the shard, and checks it. What came wrong is fetched again before it is an error.
  Source fetch_checked(FileSink& sink);
  Source transfer(FileSink& sink);
  Source copy_local(FileSink& sink);
  void expand(FileSink& sink, std::string_view compressed, const std::string& name);
  /// Makes room, and with it the temporary file, of the size that the shard will have.
  Room make_room(Urgency urgency, std::uint64_t needed_at = 0, bool may_overflow = false);
  /// Waits for room, stage by stage; without any, makes the file outside the budget. False: the
  /// caller is to read single samples from the source.
  bool find_room();
  /// Makes the file outside the budget; the name is in use by another version of the shard.
  void make_overflow_file();
  void make_file();
  std::unique_ptr<AtomicFile> new_file() const;
  /// Makes the temporary file long enough for so many bytes, and counts them.
  void grow(std::uint64_t size_bytes);
  /// Cuts the temporary file to what came, and counts that.
  void cut(std::uint64_t size_bytes);
  /// Fetches a compressed shard to a file that goes as soon as it is expanded.
  Source fetch_compressed(FileSink& sink);
  Source fetch_to(FileSink& sink);
  void require_source_hash(const Hash128& hash) const;
  detail::CacheRoom::Wanted wanted(std::uint64_t size_bytes) const {
    return {.request = request, .name = name, .size_bytes = size_bytes, .next_use = next_use};
  }
  /// Keeps the shard under its name, with its record and note.
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
  std::uint64_t reserved_bytes = 0;  ///< the temporary file's size, and what is counted of it
  bool is_overflow = false;          ///< its file lies outside the budget
  std::unique_ptr<detail::LiveCount::Slot> overflow = nullptr;
  std::optional<std::chrono::milliseconds> retry_for = {};
  /// Casts doubt on the ledger, unless the shard came into the cache.
  struct Uncounted {
    void operator()(const detail::CacheLedger* ledger) const noexcept { ledger->doubt(); }
  };
  std::unique_ptr<const detail::CacheLedger, Uncounted> uncounted = nullptr;
  std::unique_ptr<AtomicFile> file = nullptr;
  bool is_one_stream = false;  // it was tried in parts
  /// Ends before the file goes.
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
  } coming = {};  // none: it cannot be followed
};

}  // namespace shardwise
