#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
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
#include "storage/cache_futures.h"
#include "storage/cache_ledger.h"
#include "storage/cache_locks.h"
#include "storage/cache_request.h"
#include "storage/coming_shard.h"
#include "storage/eviction.h"

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
        directory(wanted.directory, wanted.create, sharing_of(wanted)),
        ledger(directory),
        board(detail::futures_folder(wanted.directory)),
        uses(directory),
        fetchers(wanted.fetchers ? wanted.fetchers : std::make_shared<const Fetchers>()) {}
  static detail::CacheDirectory::Sharing sharing_of(const ShardCache::Options& options) {
    using Sharing = detail::CacheDirectory::Sharing;
    if (options.read_only) return Sharing::kReadOnly;
    return options.group_shared ? Sharing::kGroup : Sharing::kOwn;
  }
  /// Throws for what a cache that is only read cannot do. Errors: Unsupported.
  void require_writable(std::string_view what) const;
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// A shard that needs room.
  struct Wanted {
    const CacheRequest& request;
    const std::string& name;
    std::uint64_t size_bytes = 0;
    const NextUseOf& next_use;
    Urgency urgency = Urgency::kNow;
    std::uint64_t needed_at = 0;  ///< kAhead: the slot
    bool may_overflow = true;     ///< without room, its file is made outside the budget
  };
  /// Makes the shard's file, or makes it larger.
  using MakeFile = std::function<void(bool is_overflow)>;

  std::optional<CachedShard> find(const CacheRequest& request, const std::string& name);
  /// Compares the shard under the name with what is known of the wanted one, while it is held.
  bool is_as_asked(const CacheRequest& request, const std::string& name) const;
  using Record = detail::CacheDirectory::Record;
  /// False if others may have changed the shard or its record, and it is not what the index has, or
  /// nothing tells. Where they may, `shard` is bound to the file that was checked.
  /// Errors: StaleIndex if it is wrong, and no right one can be fetched.
  bool is_genuine(const CacheRequest& request, CachedShard& shard);
  /// Whether the shard's bytes are still those of its record, which is brought up to date.
  bool is_intact(const CacheRequest& request, const std::string& name, Record& record) const;
  /// Writes the note of a shard; if that fails, the shard has none.
  void write_note(const std::string& name, const Hash128& shard_hash, std::string_view text) const;
  /// Writes the record of a shard that is there, if no other process does and the disk has room.
  void renew(const std::string& name, const Record& record) const;
  /// Waits for the lock on a byte that others hold briefly: calls `attempt` until it returns a
  /// value.
  /// Errors: kIo; Cancelled.
  template <class Attempt>
  auto wait_for(const CacheRequest& request, std::uint64_t byte, std::string_view who_is_stuck,
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
  /// Waits for the lock to fetch the shard, for as long as its owner may fetch.
  detail::ByteLock lock_fetch(const CacheRequest& request, const std::string& name);
  /// When a temporary file of the shard was written to; 0: there is none. Cost: O(shards).
  std::int64_t latest_write_ns(const std::string& name) const;
  /// Calls on_wait, once a shard, and once more if the process that is waited for is stopped.
  void tell_of_wait(const CacheRequest& request, const std::string& name,
                    const detail::LockWatch& watch);
  std::uint64_t size_wanted(const CacheRequest& request,
                            std::optional<std::chrono::milliseconds> retry_for) const;
  /// Holds the shard's name, and finds out how much room it takes. Makes none yet.
  /// @param lock  the one to fetch the shard.
  std::unique_ptr<ShardFetch::Impl> begin_fetch(detail::ByteLock lock, const CacheRequest& request,
                                                const std::string& name, const NextUseOf& next_use);
  void require_within_budget(const CacheRequest& request, std::uint64_t size_bytes) const;
  /// A shard in the cache that may have to make room.
  struct Candidate : EvictionCandidate {
    Candidate(EvictionCandidate as, detail::CacheDirectory::Shard of)
        : EvictionCandidate(as), shard(std::move(of)) {}
    detail::CacheDirectory::Shard shard;
  };
  struct Survey {
    std::vector<Candidate> shards;      ///< all but `name`, in the order in which they should leave
    std::uint64_t bytes = 0;            ///< of `shards`
    std::uint64_t used_bytes = 0;       ///< of all that is there, and all that is being fetched
    detail::CacheLedger::Count before;  ///< the listing
  };
  /// Lists all that is there, and asks when each shard besides `name` is needed.
  Survey survey(const std::string& name, const NextUseOf& next_use) const;
  /// Marks what users of unknown order are to keep: together as much of the budget as others have.
  void spare_unknown(Survey& found) const;
  /// Marks the candidates that others have held for room_timeout although they may go.
  void mark_stuck(Survey& found);
  /// Tries to get the right to remove a candidate, and notes since when it was tried in vain.
  [[nodiscard]] bool try_victim(const Candidate& candidate, detail::ByteLocks& locks);
  /// What the survey counted; nothing if something changed since.
  std::optional<std::uint64_t> counted(const RoomLock&, const Survey& found) const;
  /// Removes shards that were found, and whose use bytes are locked.
  void remove(const RoomLock&, Survey& found, const std::vector<std::size_t>& victims);
  /// What stays for now, and counts as gone, of those that should leave.
  enum class Spare : std::uint8_t {
    kNothing,
    kHeld,    ///< what somebody holds
    kNeeded,  ///< and what is needed before the new shard
  };
  /// Locks those that should leave until the found shards take `max_bytes` together, or all that
  /// are left are mapped.
  std::vector<std::size_t> lock_surplus(const Survey& found, std::uint64_t max_bytes,
                                        detail::ByteLocks& locks, Spare spare);
  /// Comes down to the budget, but for the shard that is held now ("": none). True: it has done so,
  /// or all that is beyond it is mapped.
  /// Where something is spared, false as long as that is there.
  bool come_down(const std::string& held, const NextUseOf& next_use, Spare spare);
  /// Comes down from what was taken beyond the budget for the sake of shards in use, as far as
  /// these were let go.
  void settle(const NextUseOf& next_use);
  /// Comes down to the budget when the first shard is asked for, which is held now.
  void come_down_once(const std::string& held, const NextUseOf& next_use);
  /// Makes room for a shard, and calls `make` under the room lock: unless the answer is kNotNow, or
  /// it is kNone and the shard may not overflow the budget.
  /// While the disk is full although the budget is not, shards leave as though it were.
  Room make_room(const Wanted& wanted, const MakeFile& make);
  Room make_room_within(std::uint64_t budget_bytes, const Wanted& wanted, const MakeFile& make);
  /// Runs what takes `wanted.size_bytes` of the disk, at most. While that is full, shards leave
  /// that take as much, and it is run again. Errors: kNoSpace if none may go.
  void with_disk_space(const Wanted& wanted, const std::function<void()>& take);
  bool ask_to_release(const std::string& name);
  /// True if somebody in this process uses the shard now, as a batch does that has samples of it.
  bool is_used_here(const std::string& name);
  /// Those whose owners live, by copies that are called without the mutex.
  std::vector<std::pair<std::shared_ptr<void>, detail::CacheAccess::Releaser>> living_releasers();
  /// Adds the right to remove a shard to `locks`, if nobody needs it mapped.
  [[nodiscard]] bool try_to_remove(const std::string& name, detail::ByteLocks& locks);
  /// True if room was made for the shard, or it is there. Cost: O(shards) where that may have
  /// changed since the last call.
  bool has_room(const std::string& name);
  /// Whether a shard left to make room, or for what is to come under its name.
  enum class Counted : std::uint8_t { kEvicted, kReplaced };
  /// Removes a shard whose use byte is locked, and returns its bytes. The caller tells the ledger.
  std::int64_t remove(const RoomLock&, const detail::CacheDirectory::Shard& shard, Counted what);
  /// Removes a shard that no process uses; false if one does.
  bool remove_unused(const detail::CacheDirectory::Shard& shard);
  /// Removes what killed processes left, and counts what is there.
  void take_stock();
  void sweep(const detail::CacheDirectory::Contents& contents) const;

  /// Writes the metrics' file, if there is to be one and it is time. In the process that opened the
  /// cache only: a forked child would replace what its parent wrote.
  void tell_metrics() const noexcept;
  std::string metrics() const;

  template <class Change>
  void count(const Change& change) const {
    const Lock lock(mutex);
    change(stats);
  }

  const ShardCache::Options options;
  const detail::CacheDirectory directory;
  const detail::CacheLedger ledger;
  mutable detail::FutureBoard board;
  detail::UseTable uses;
  std::atomic<bool> has_come_down{false};
  std::atomic<bool> has_overrun{false};
  const std::uint64_t process = process_generation();  // that opened it
  const std::shared_ptr<const Fetchers> fetchers;

  struct Releaser {
    std::weak_ptr<void> owner;
    detail::CacheAccess::Releaser ask;
  };
  /// What this process is fetching under this name, if it can be followed; else null.
  std::shared_ptr<detail::ComingShard> find_coming(const std::string& name) const;

  /// Counts a shard of this process outside the budget, while it lives.
  class OverflowSlot {
   public:
    explicit OverflowSlot(std::shared_ptr<Impl> of) : of_(std::move(of)) {}
    ~OverflowSlot() {
      const Lock lock(of_->mutex);
      if (process_ == process_generation()) --of_->num_overflow.get();
    }
    OverflowSlot(const OverflowSlot&) = delete;
    OverflowSlot& operator=(const OverflowSlot&) = delete;

   private:
    const std::shared_ptr<Impl> of_;
    const std::uint64_t process_ = process_generation();
  };
  /// Null if this process has a shard outside the budget already, unless `must`.
  std::unique_ptr<OverflowSlot> take_overflow_slot(bool must);

  bool is_running() const {
    const Lock lock(mutex);
    return num_running.get() > 0;
  }

  mutable Mutex mutex;
  mutable PerProcess<int> num_running SHARDWISE_GUARDED_BY(mutex);  // fetches
  PerProcess<int> num_overflow SHARDWISE_GUARDED_BY(mutex);
  mutable ShardCache::Stats stats SHARDWISE_GUARDED_BY(mutex);
  std::vector<Releaser> releasers SHARDWISE_GUARDED_BY(mutex);
  mutable std::chrono::steady_clock::time_point told SHARDWISE_GUARDED_BY(mutex) = {};
  // Shards that may go, but are held: since when, by name.
  std::map<std::string, std::chrono::steady_clock::time_point> stuck_since
      SHARDWISE_GUARDED_BY(mutex);
  /// Shards that had no room, and the ledger then, by name.
  std::map<std::string, detail::CacheLedger::Count> without_room SHARDWISE_GUARDED_BY(mutex);
  /// Files that others may change, and that were checked by this process.
  std::set<detail::FileIdentity> checked SHARDWISE_GUARDED_BY(mutex);
  /// Shards that on_wait was called for, and whether their process was stopped then.
  std::set<std::pair<std::string, bool>> told_of SHARDWISE_GUARDED_BY(mutex);
  /// What a fetch of this process failed with last, by the shard's name.
  struct Failure {
    std::chrono::steady_clock::time_point when;
    std::exception_ptr error;
  };
  std::map<std::string, Failure> failures SHARDWISE_GUARDED_BY(mutex);
  /// Notes the exception that is being handled.
  void note_failure(const std::string& name);
  void forget_failure(const std::string& name);
  /// For how long a fetch may be tried again that begins now: one that gave up used all the time
  /// there was, which comes back as it passes. Nothing: for as long as the options say.
  std::optional<std::chrono::milliseconds> patience_left(const std::string& name) const;
  /// What a fetch of the shard failed with since; null if none did.
  std::exception_ptr failure_since(std::chrono::steady_clock::time_point when,
                                   const std::string& name) const;
  mutable PerProcess<std::map<std::string, std::weak_ptr<detail::ComingShard>>> coming
      SHARDWISE_GUARDED_BY(mutex);  // by name
};

struct CachedShard::Hold {
  Hold(std::shared_ptr<ShardCache::Impl> of, std::string shard, detail::UseTable::Hold taken)
      : cache(std::move(of)), name(std::move(shard)), use(taken) {}
  ~Hold() {
    const bool was_own = own_file != nullptr;
    own_file.reset();
    overflow.reset();
    if (was_own) cache->ledger.doubt();  // its bytes are gone
    cache->uses.release(name, use);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  const std::shared_ptr<ShardCache::Impl> cache;
  const std::string name;
  detail::UseTable::Hold use;
  std::unique_ptr<AtomicFile> own_file;  // the shard, if there was no room for it
  std::unique_ptr<ShardCache::Impl::OverflowSlot> overflow;
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
  void grow(std::uint64_t size_bytes);
  /// As ShardCache::Impl::with_disk_space(), for this shard's sake.
  void with_disk_space(std::uint64_t size_bytes, const std::function<void()>& take);
  /// Fetches a compressed shard to a file that goes as soon as it is expanded.
  Source fetch_compressed(FileSink& sink);
  Source fetch_to(FileSink& sink);
  void require_source_hash(const Hash128& hash) const;
  void require_size(std::optional<std::uint64_t> wanted, std::uint64_t size_bytes) const;
  std::optional<std::string> fetch_parts(Fetcher::Request asked, FileSink& sink);
  File& renew_file();

  std::shared_ptr<ShardCache::Impl> cache;
  CacheRequest request;
  std::string name;
  NextUseOf next_use;
  CachedShard held;
  detail::ByteLock lock;
  std::uint64_t reserved_bytes = 0;
  bool is_overflow = false;  ///< its file lies outside the budget
  std::unique_ptr<ShardCache::Impl::OverflowSlot> overflow = nullptr;
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
