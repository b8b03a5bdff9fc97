#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/fork.h"
#include "storage/cache_directory.h"
#include "storage/cache_locks.h"
#include "storage/cache_request.h"

// The state that the parts of the shard cache share: shard_cache.cc finds a shard or has it
// fetched, cache_room.cc makes room for it, shard_fetch.cc fetches it, cache_locks.cc has the locks
// of all that, and cache_inspect.cc lists, verifies and removes shards.

namespace shardwise {

namespace detail {

/// Bytes that are read or written at once.
inline constexpr std::size_t kCachePieceBytes = std::size_t{1} << 20;

/// The size of a regular file; nothing if there is none.
std::optional<std::uint64_t> find_size(const std::string& path);
/// hash128 of a file's bytes. Errors: NotFound, kIo; Cancelled.
/// @param progress  is given how many bytes were read now; may be empty.
Hash128 hash_of_file(const File& file, const CancelToken& cancel,
                     const std::function<void(std::uint64_t bytes)>& progress = nullptr);
/// Sets the shard's last use to now.
void touch(const std::string& path) noexcept;

/// Waits between the tries of a lock, longer each time.
class Pause {
 public:
  void operator()() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, kLongest);
  }

 private:
  static constexpr std::chrono::microseconds kLongest{10'000};
  std::chrono::microseconds next_{100};
};

}  // namespace detail

class FileSink;

struct ShardCache::Impl : std::enable_shared_from_this<ShardCache::Impl> {
  explicit Impl(const ShardCache::Options& wanted)
      : options(wanted),
        directory(wanted.directory, wanted.create),
        uses(directory),
        fetchers(wanted.fetchers ? wanted.fetchers : std::make_shared<const Fetchers>()) {}

  enum class Room : std::uint8_t {
    kMade,
    kNotNow,  ///< the victim is still needed
    kNone     ///< no shard may go
  };
  /// How urgently a shard is needed.
  struct Need {
    std::optional<std::uint64_t> ahead_for = {};  ///< not before this position
    bool patient = false;  ///< it is needed now, but may wait until its victim is free
  };

  std::optional<CachedShard> find(const CacheRequest& request, const std::string& name);
  /// Compares the shard under the name with what is known of the wanted one, while it is held.
  bool is_as_asked(const CacheRequest& request, const std::string& name) const;
  using Record = detail::CacheDirectory::Record;
  /// Whether the shard's bytes are still those of its record, which is brought up to date.
  bool is_intact(const CacheRequest& request, const std::string& name, Record& record) const;
  /// Writes the note of a shard; if that fails, the shard has none.
  void write_note(const std::string& name, const Hash128& shard_hash, std::string_view text) const;
  /// Writes the record of a shard that is there, if no other process does and the disk has room.
  void renew(const std::string& name, const Record& record) const;
  /// Waits for a lock that others hold briefly: calls `attempt` until it returns a value.
  /// Errors: kIo; Cancelled.
  template <class Attempt>
  auto wait_for(const CacheRequest& request, std::string_view who_is_stuck,
                const Attempt& attempt) const;
  /// The lock on kRoomByte. What takes one as its first argument is called with it held.
  struct RoomLock {
    detail::ByteLock lock;
  };
  /// Waits for the room lock. Errors: kIo; Cancelled.
  RoomLock lock_room(const CacheRequest& request) const;
  CachedShard hold(const CacheRequest& request, const std::string& name);
  /// Removes a shard that has the name and is not the one asked for. False: it was in use for as
  /// long as `patience`. Called when find() found nothing.
  /// @param fetching  the lock to fetch the shard.
  bool clear(const detail::ByteLock& fetching, const CacheRequest& request, const std::string& name,
             std::chrono::milliseconds patience);
  /// Waits for the lock to fetch the shard, for as long as its owner's fetch makes progress.
  detail::ByteLock lock_fetch(const CacheRequest& request, const std::string& name);
  std::uint64_t size_wanted(const CacheRequest& request) const;
  /// Holds the shard's name, and finds out how much room it takes. Makes none yet.
  /// @param lock  the one to fetch the shard.
  std::unique_ptr<ShardFetch::Impl> begin_fetch(detail::ByteLock lock, const CacheRequest& request,
                                                const std::string& name, const NextUseOf& next_use);
  void require_within_budget(const CacheRequest& request, std::uint64_t size_bytes) const;
  /// A shard in the cache that may have to make room.
  struct Candidate {
    detail::CacheDirectory::Shard shard;
    NextUse next;

    bool is_known() const noexcept { return next.kind != NextUse::Kind::kUnknown; }
    bool is_in_use() const noexcept { return next.kind == NextUse::Kind::kInUse; }
  };
  struct Survey {
    std::vector<Candidate> shards;    ///< all but `name`, in the order in which they should leave
    std::uint64_t bytes = 0;          ///< of `shards`
    std::uint64_t own_bytes = 0;      ///< of the shard `name`, if it is there
    std::uint64_t fetched_bytes = 0;  ///< of all that is being fetched
  };
  /// Counts all that is there besides the shard `name`.
  Survey survey(const RoomLock&, const std::string& name, const NextUseOf& next_use) const;
  /// Removes shards until those that were found take `max_bytes` together, or all that are left are
  /// mapped.
  void come_down(const RoomLock&, Survey& found, std::uint64_t max_bytes);
  /// Comes down to the budget when the first shard is asked for, which is held now.
  void come_down_once(const std::string& held, const NextUseOf& next_use);
  /// Makes room for `size_bytes` more, not counting what is there of `name`.
  Room make_room(const RoomLock& room, const std::string& name, std::uint64_t size_bytes,
                 const NextUseOf& next_use, const Need& need);
  bool ask_to_release(const std::string& name);
  /// Adds the right to remove a shard to `locks`, if nobody needs it mapped.
  [[nodiscard]] bool try_to_remove(const RoomLock&, const std::string& name,
                                   detail::ByteLocks& locks);
  /// True if room was made for the shard, or it is there.
  bool has_room(const std::string& name) const;
  void remove(const detail::CacheDirectory::Shard& shard);
  void sweep(const detail::CacheDirectory::Contents& contents) const;

  template <class Change>
  void count(const Change& change) const {
    const Lock lock(mutex);
    change(stats);
  }

  const ShardCache::Options options;
  const detail::CacheDirectory directory;
  detail::UseTable uses;
  std::atomic<bool> has_come_down{false};
  const std::shared_ptr<const Fetchers> fetchers;

  struct Releaser {
    std::weak_ptr<void> owner;
    std::function<bool(const std::string&)> release;
  };
  /// Notes that this process fetches the shard, for as long as what is returned lives.
  std::shared_ptr<void> note_fetch(const std::string& name);
  bool is_fetched_here(const std::string& name) const;

  bool is_running() const {
    const Lock lock(mutex);
    return num_running.get() > 0;
  }

  mutable Mutex mutex;
  mutable PerProcess<int> num_running SHARDWISE_GUARDED_BY(mutex);  // fetches
  mutable ShardCache::Stats stats SHARDWISE_GUARDED_BY(mutex);
  std::vector<Releaser> releasers SHARDWISE_GUARDED_BY(mutex);
  mutable PerProcess<std::multiset<std::string>> fetched_here
      SHARDWISE_GUARDED_BY(mutex);  // by name
};

struct CachedShard::Hold {
  Hold(std::shared_ptr<ShardCache::Impl> of, std::string shard, detail::UseTable::Hold taken)
      : cache(std::move(of)), name(std::move(shard)), use(taken) {}
  ~Hold() {
    own_file.reset();
    cache->uses.release(name, use);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  const std::shared_ptr<ShardCache::Impl> cache;
  const std::string name;
  detail::UseTable::Hold use;
  std::unique_ptr<AtomicFile> own_file;  // the shard, if there was no room for it
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
  Source transfer(FileSink& sink);
  Source copy_local(FileSink& sink);
  void expand(FileSink& sink, std::string_view compressed, const std::string& name);
  /// Makes the temporary file, of the size that the shard will have.
  void make_file();
  void grow(std::uint64_t size_bytes);
  Source fetch_to(FileSink& sink);
  void require_source_hash(const Hash128& hash) const;
  void require_size(std::optional<std::uint64_t> wanted, std::uint64_t size_bytes) const;

  std::shared_ptr<ShardCache::Impl> cache;
  CacheRequest request;
  std::string name;
  NextUseOf next_use;
  CachedShard held;
  detail::ByteLock lock;
  std::shared_ptr<void> noted = nullptr;  // see note_fetch
  std::uint64_t reserved_bytes = 0;
  bool bypass = false;
  std::unique_ptr<AtomicFile> file = nullptr;
};

}  // namespace shardwise
