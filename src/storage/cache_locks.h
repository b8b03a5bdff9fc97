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

// The locks of a shard cache: bytes of its locks file, listed in docs/formats/cache-directory.md.
// shard_cache.cc says in which order they are taken.

namespace shardwise::detail {

/// The byte of the locks file that is locked while room is made.
inline constexpr std::uint64_t kRoomByte = 0;
/// The byte that is locked while the shard is fetched.
std::uint64_t fetch_byte(std::string_view name);
/// The byte that is locked, shared, while the shard is in use.
std::uint64_t use_byte(std::string_view name);

/// An exclusive lock on a byte of the locks file. Freed on destruction, or when the process ends.
/// Movable.
class [[nodiscard]] ByteLock {
 public:
  /// Takes the lock; returns nullopt if another holder has it.
  [[nodiscard]] static std::optional<ByteLock> try_take(const CacheDirectory& directory,
                                                        std::uint64_t byte);

 private:
  explicit ByteLock(File file) : file_(std::move(file)) {}
  File file_;  // not shared: closing it frees the lock
};

/// Watches the holder of a lock that a thread waits for.
///
/// Threads: one.
/// Units: time counts only while this thread runs; it does not pass while the whole job is stopped.
class LockWatch {
 public:
  LockWatch(const CacheDirectory& directory, std::uint64_t byte)
      : directory_(directory), byte_(byte) {}

  /// Call between tries. About once a second it looks up the holder, and returns true.
  bool probe();
  void look_now();
  std::chrono::milliseconds waited() const noexcept { return rounded(waited_); }
  /// How long the holder has been seen stopped, up to the last look.
  std::chrono::milliseconds stopped_for() const noexcept { return rounded(stopped_); }
  /// The holder at the last look; nullopt if it cannot be seen.
  const std::optional<LockHolder>& holder() const noexcept { return holder_; }
  bool is_own() const noexcept;
  /// How long the lock has been seen as a shared one, up to the last look. A cache takes only
  /// exclusive locks on the fetch and room bytes, so such a holder is not a user of the cache.
  std::chrono::milliseconds foreign_for() const noexcept { return rounded(foreign_); }
  /// The lock's holder in parentheses, as far as this process can see.
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

/// Exclusive locks on any number of bytes of the locks file, with one descriptor. Freed on
/// destruction, or when the process ends.
class ByteLocks {
 public:
  explicit ByteLocks(const CacheDirectory& directory) : directory_(directory) {}
  /// False if another holder has it.
  [[nodiscard]] bool try_take(std::uint64_t byte);

 private:
  const CacheDirectory& directory_;
  File file_;
};

/// The shards that this process pins. Threads: internally synchronised.
///
/// After fork() the parent's pins stay the parent's. The child gets copies of the pins that the
/// parent shared, when it first pins or unpins a shard.
class PinTable {
 public:
  explicit PinTable(const CacheDirectory& directory) : directory_(directory) {}

  /// One user of a shard. Until it is shared, it belongs to a thread that may not exist after
  /// fork().
  struct Pin {
    std::uint64_t process = 0;
    bool is_shared = false;
  };
  /// Returns nullopt while the shard is being evicted, which is brief.
  [[nodiscard]] std::optional<Pin> try_pin(const std::string& name);
  /// Marks a pin as inherited by forked children, each of which unpins its copy.
  void share(const std::string& name, Pin& pin) noexcept;
  void unpin(const std::string& name, const Pin& pin) noexcept;

 private:
  struct Users {
    std::size_t own = 0;     // of threads of this process
    std::size_t shared = 0;  // with children
    bool is_locked = false;
  };
  /// In a forked child: drops the pins that are the parent's alone.
  void adopt() noexcept SHARDWISE_REQUIRES(mutex_);
  /// Opens the locks file if this process has not done so, or if it was unlinked.
  void renew() SHARDWISE_REQUIRES(mutex_);
  /// In a read-only directory: takes the lock if possible.
  bool try_lock_without_writing(std::uint64_t byte) SHARDWISE_REQUIRES(mutex_);

  const CacheDirectory& directory_;
  Mutex mutex_;
  File file_ SHARDWISE_GUARDED_BY(mutex_);  // closed in a forked child
  std::uint64_t process_ SHARDWISE_GUARDED_BY(mutex_) = process_generation();
  std::map<std::string, Users> users_ SHARDWISE_GUARDED_BY(mutex_);
};

/// Waits between tries of a lock, longer each time.
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

/// Takes the locks of a cache, and waits for them with a timeout. Threads: internally synchronised.
class CacheLocks {
 public:
  /// @param retry_for  retry budget of a fetch.
  CacheLocks(const CacheDirectory& directory, const ShardCache::Options& options,
             std::chrono::milliseconds retry_for, CacheCounts& counts)
      : pins(directory),
        directory_(directory),
        options_(options),
        retry_for_(retry_for),
        counts_(counts) {}

  /// The lock on kRoomByte. Functions that take a Room require the lock.
  struct Room {
    ByteLock lock;
  };
  /// Errors of all calls that wait: kIo on timeout; Cancelled.
  Room lock_room(const CancelToken& cancel) const;
  std::optional<Room> try_lock_room() const;
  /// Pins a shard. Waits for a process that evicts it, which is brief.
  PinTable::Pin pin(const std::string& name, const CancelToken& cancel);
  /// Waits for the lock to fetch the shard, for as long as its owner may fetch.
  ByteLock lock_fetch(const CacheRequest& request, const std::string& name);
  std::optional<ByteLock> try_lock_fetch(const std::string& name) const {
    return ByteLock::try_take(directory_, fetch_byte(name));
  }

  PinTable pins;

 private:
  template <class Attempt>
  auto wait_for(std::uint64_t byte, std::string_view failure, const CancelToken& cancel,
                const Attempt& attempt) const;
  /// The latest write to a temporary file of the shard; 0 if it has no file. Cost: O(shards).
  std::int64_t latest_write_ns(const std::string& name) const;
  /// Calls on_wait, once per shard, and once more if the awaited process is stopped.
  void report_wait(const CacheRequest& request, const std::string& name, const LockWatch& watch);
  void require_progress(const CacheRequest& request, const LockWatch& watch,
                        std::chrono::milliseconds silent) const;

  const CacheDirectory& directory_;
  const ShardCache::Options& options_;
  const std::chrono::milliseconds retry_for_;
  CacheCounts& counts_;
  Mutex mutex_;
  /// Shards for which on_wait was called, and whether their process was stopped then.
  std::set<std::pair<std::string, bool>> reported_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
