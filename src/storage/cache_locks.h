#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/fork.h"
#include "base/lock_holder.h"
#include "storage/cache_directory.h"

// The locks of a shard cache: bytes of its locks file, as docs/formats/cache-directory.md lists
// them. shard_cache.cc says in which order they are taken.

namespace shardwise::detail {

/// The byte of the locks file that is locked while room is made, ...
inline constexpr std::uint64_t kRoomByte = 0;
/// ... while the shard is fetched, ...
std::uint64_t fetch_byte(std::string_view name);
/// ... and, shared, while it is in use.
std::uint64_t use_byte(std::string_view name);

/// An exclusive lock on a byte of the locks file; freed when this is destroyed or the process ends.
/// Movable.
class [[nodiscard]] ByteLock {
 public:
  /// Takes the lock; returns nothing if another holds it.
  [[nodiscard]] static std::optional<ByteLock> try_take(const CacheDirectory& directory,
                                                        std::uint64_t byte);

 private:
  explicit ByteLock(File file) : file_(std::move(file)) {}
  File file_;  // of its own: closing it frees the lock
};

/// Watches who holds a lock that a thread waits for. One thread.
///
/// Times are of this thread's waiting: while it is stopped itself, as all processes of a job may
/// be, no time passes.
class LockWatch {
 public:
  LockWatch(const CacheDirectory& directory, std::uint64_t byte)
      : directory_(directory), byte_(byte) {}

  /// To be called between tries. About once a second it looks who holds the lock, and returns true.
  bool look();
  void look_now();
  std::chrono::milliseconds waited() const noexcept { return rounded(waited_); }
  /// For how long the holder has been seen stopped, up to the last look.
  std::chrono::milliseconds stopped_for() const noexcept { return rounded(stopped_); }
  /// As it was at the last look; nothing if it cannot be seen.
  const std::optional<LockHolder>& holder() const noexcept { return holder_; }
  bool is_own() const noexcept;
  /// For how long the lock has been seen to be a shared one, up to the last look. No program takes
  /// such a lock on a byte that is fetched or made room under: whoever holds it is no user of the
  /// cache.
  std::chrono::milliseconds foreign_for() const noexcept { return rounded(foreign_); }
  /// Who holds the lock, as far as this process can see, in parentheses.
  std::string who() const;
  /// What to do about a holder that is stuck, for error texts.
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

/// Exclusive locks on any number of bytes of the locks file, with one descriptor; freed when this
/// is destroyed or the process ends.
class ByteLocks {
 public:
  explicit ByteLocks(const CacheDirectory& directory) : directory_(directory) {}
  /// False if another holds it.
  [[nodiscard]] bool try_take(std::uint64_t byte);

 private:
  const CacheDirectory& directory_;
  File file_;
};

/// The shards that this process uses. Threads: internally synchronised.
///
/// After fork() the parent's holds stay the parent's. The child has holds of its own on the shards
/// that the parent kept, from the time on at which it first holds or releases one.
class UseTable {
 public:
  explicit UseTable(const CacheDirectory& directory) : directory_(directory) {}

  /// One user of a shard. Until it is kept, it belongs to a thread that may not exist after fork().
  struct Hold {
    std::uint64_t process = 0;
    bool is_kept = false;
  };
  /// Counts a user of the shard. Returns nothing while it is being evicted, which is brief.
  [[nodiscard]] std::optional<Hold> try_hold(const std::string& name);
  /// Marks a hold that a forked child has a copy of, and will release.
  void keep(const std::string& name, Hold& hold) noexcept;
  void release(const std::string& name, const Hold& hold) noexcept;

 private:
  struct Users {
    std::size_t passing = 0;
    std::size_t kept = 0;
    bool is_locked = false;
  };
  /// In a forked child: drops the users that are the parent's alone.
  void adopt() noexcept SHARDWISE_REQUIRES(mutex_);
  /// Opens the locks file if that has not been done by this process, or if it was unlinked.
  void renew() SHARDWISE_REQUIRES(mutex_);
  /// In a directory that is only read: takes the lock where that is possible.
  bool try_lock_without_writing(std::uint64_t byte) SHARDWISE_REQUIRES(mutex_);

  const CacheDirectory& directory_;
  Mutex mutex_;
  File file_ SHARDWISE_GUARDED_BY(mutex_);  // a child finds it closed
  std::uint64_t process_ SHARDWISE_GUARDED_BY(mutex_) = process_generation();
  std::map<std::string, Users> users_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
