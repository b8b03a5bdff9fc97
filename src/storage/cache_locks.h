#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/fork.h"
#include "base/lock_holder.h"
#include "shardwise/base/cancel.h"
#include "storage/cache_directory.h"
#include "storage/cache_metrics.h"
#include "storage/cache_request.h"

// The locks of a shard cache. Each lock is one byte of the cache's locks file;
// docs/formats/cache-directory.md lists the bytes. shard_cache.cc documents the order in which they
// are locked.

namespace shardwise::detail {

/// The byte of the locks file that is locked to make room in the cache.
inline constexpr std::uint64_t kRoomByte = 0;
/// The byte that is locked while the shard is fetched.
std::uint64_t fetch_byte(std::string_view name);
/// The byte on which each user of the shard holds a shared lock.
std::uint64_t use_byte(std::string_view name);

/// An exclusive lock on one byte of the locks file. The destructor releases it; so does the end of
/// the process. Movable.
class [[nodiscard]] ByteLock {
 public:
  /// Tries to take the lock. Returns nullopt if another holder has it.
  [[nodiscard]] static std::optional<ByteLock> try_take(const CacheDirectory& directory,
                                                        std::uint64_t byte);

 private:
  explicit ByteLock(File file) : file_(std::move(file)) {}
  File file_;  // not shared, because closing it releases the lock
};

/// Observes the holder of a lock that a thread waits for.
///
/// Threads: one.
/// Units: times advance only while this thread runs, so a stop of the whole job does not count.
class LockWatch {
 public:
  LockWatch(const CacheDirectory& directory, std::uint64_t byte)
      : directory_(directory), byte_(byte) {}

  /// Call this between attempts. About once a second it looks up the holder, and then returns true.
  bool probe();
  void look_now();
  std::chrono::milliseconds waited() const noexcept { return rounded(waited_); }
  /// How long the holder has been seen stopped (SIGSTOP), as of the last lookup.
  std::chrono::milliseconds stopped_for() const noexcept { return rounded(stopped_); }
  /// The holder at the last lookup; nullopt if it is not visible to this process.
  const std::optional<LockHolder>& holder() const noexcept { return holder_; }
  bool is_own() const noexcept;
  /// How long the lock has been seen as a shared lock, as of the last lookup. Caches lock the fetch
  /// and room bytes only exclusively, so the holder of a shared lock is not a user of the cache.
  std::chrono::milliseconds foreign_for() const noexcept { return rounded(foreign_); }
  /// Describes the lock's holder in parentheses, as far as this process can see it.
  std::string who() const;
  /// The remedy for a stuck holder, for error messages.
  std::string remedy() const;

 private:
  using Clock = std::chrono::steady_clock;
  static std::chrono::milliseconds rounded(Clock::duration time) noexcept {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time);
  }

  const CacheDirectory& directory_;
  const std::uint64_t byte_;
  Clock::time_point last_ = Clock::now();
  Clock::duration waited_{}, stopped_{}, foreign_{}, next_look_ = std::chrono::seconds(1);
  std::optional<LockHolder> holder_;
  bool is_foreign_ = false;
};

/// Exclusive locks on any number of bytes of the locks file, through one descriptor. The destructor
/// releases them; so does the end of the process.
class ByteLocks {
 public:
  explicit ByteLocks(const CacheDirectory& directory) : directory_(directory) {}
  /// Tries to lock the byte. Returns false if another holder has it.
  [[nodiscard]] bool try_take(std::uint64_t byte);

 private:
  friend class ByteLock;
  const CacheDirectory& directory_;
  File file_;
};

/// The shards that this process pins. Threads: internally synchronised.
///
/// After fork(), the child has copies of only those pins that the parent has shared. It takes these
/// copies when it first pins or unpins a shard.
class PinTable {
 public:
  explicit PinTable(const CacheDirectory& directory) : directory_(directory) {}

  /// One pin of a shard. An unshared pin belongs to a thread, which may not exist after fork().
  struct Pin {
    std::uint64_t process = 0;
    bool is_shared = false;
  };
  /// Pins the shard. Returns nullopt while the shard is being evicted, which takes little time.
  [[nodiscard]] std::optional<Pin> try_pin(const std::string& name);
  /// Marks a pin as inherited by children forked from now on. Each child unpins its own copy.
  void share(const std::string& name, Pin& pin) noexcept;
  void unpin(const std::string& name, const Pin& pin) noexcept;

 private:
  struct Users {
    std::size_t own = 0;     // pins by threads of this process only
    std::size_t shared = 0;  // pins that forked children inherit
    bool is_locked = false;
  };
  /// In a forked child: drops the pins that the parent did not share.
  void adopt() noexcept SHARDWISE_REQUIRES(mutex_);
  /// Opens the locks file if this process has not opened it yet, or if the file was unlinked.
  void renew() SHARDWISE_REQUIRES(mutex_);
  /// In a read-only cache: tries to lock the byte. Returns false if that fails or the locks file
  /// could not be opened.
  bool try_lock_without_writing(std::uint64_t byte) SHARDWISE_REQUIRES(mutex_);

  const CacheDirectory& directory_;
  Mutex mutex_;
  File file_ SHARDWISE_GUARDED_BY(mutex_);  // a forked child closes it and opens its own
  std::uint64_t process_ SHARDWISE_GUARDED_BY(mutex_) = process_generation();
  std::map<std::string, Users> users_ SHARDWISE_GUARDED_BY(mutex_);
};

/// Sleeps between attempts to take a lock, longer each time.
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

/// Takes the locks of a cache, waiting with a timeout. Threads: internally synchronised.
class CacheLocks {
 public:
  /// @param retry_for  retry budget of one fetch.
  CacheLocks(const CacheDirectory& directory, const ShardCache::Options& options,
             std::chrono::milliseconds retry_for, CacheCounts& counts)
      : pins(directory),
        directory_(directory),
        options_(options),
        retry_for_(retry_for),
        counts_(counts) {}

  /// The lock on kRoomByte. A function that takes a Room requires the caller to hold this lock.
  struct Room {
    ByteLock lock;
  };
  /// Errors of all calls that wait: kIo after the timeout; Cancelled.
  Room lock_room(const CancelToken& cancel) const;
  std::optional<Room> try_lock_room() const;
  /// Pins a shard. If a process is evicting the shard, waits until it has finished, which takes
  /// little time.
  PinTable::Pin pin(const std::string& name, const CancelToken& cancel);
  /// Waits for the lock to fetch the shard, as long as the present holder may take to fetch it.
  ByteLock lock_fetch(const CacheRequest& request, const std::string& name);
  std::optional<ByteLock> try_lock_fetch(const std::string& name) const {
    return ByteLock::try_take(directory_, fetch_byte(name));
  }

  PinTable pins;

 private:
  template <class Attempt>
  auto wait_for(std::uint64_t byte, std::string_view failure, const CancelToken& cancel,
                const Attempt& attempt) const;
  /// The time of the latest write to a temporary file of the shard; 0 if it has no such file. Cost:
  /// O(shards).
  std::int64_t latest_write_ns(const std::string& name) const;
  /// Calls on_wait once per shard, and once more if the process that holds the lock is stopped
  /// (SIGSTOP).
  void report_wait(const CacheRequest& request, const std::string& name, const LockWatch& watch);
  void require_progress(const CacheRequest& request, const LockWatch& watch,
                        std::chrono::milliseconds silent) const;

  const CacheDirectory& directory_;
  const ShardCache::Options& options_;
  const std::chrono::milliseconds retry_for_;
  CacheCounts& counts_;
  Mutex mutex_;
  /// Shards for which on_wait was called, and whether the lock's holder was stopped at that call.
  std::set<std::pair<std::string, bool>> reported_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
