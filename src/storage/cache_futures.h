#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/fork.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "storage/eviction.h"

// Each user of a shard cache posts the shards that it will need, in a file in the cache
// (docs/formats/cache-directory.md), so that other users do not evict them. A user is one reader.
// If its order is unknown, it posts no uses. Otherwise it counts time in slots of that order; the
// ratio of two users' speeds converts the slots of one user to those of the other.

namespace shardwise::detail {

/// Returns the folder of a cache in which users post their future uses.
std::string futures_folder(const std::string& cache_directory);

/// One use of a shard: the user needs it in the slots [begin, end).
struct PostedUse {
  Hash128 name;  ///< CacheAccess::name_of() as a number
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend auto operator<=>(const PostedUse&, const PostedUse&) = default;
};

/// A user's position in its order, and its speed.
struct UserPace {
  std::uint64_t now = 0;             ///< first slot not yet read
  std::uint64_t slots_done = 0;      ///< slots completed since the user began
  std::int64_t began_ns = 0;         ///< start time, on the machine's monotonic clock
  std::uint64_t bytes_per_slot = 0;  ///< shard bytes per slot, on average
  /// End of the epoch, where this rank waits for the other ranks of the same order. 0 means the
  /// user does not wait. This value is not posted.
  std::uint64_t waits_at = 0;
};

/// All future uses of shards by one user. Immutable.
class SHARDWISE_EXPORT UserFuture {
 public:
  /// @param uses  may be in any order.
  explicit UserFuture(std::vector<PostedUse> uses);

  /// Returns when this user needs the shard next, counted from `slot`. This user has read all slots
  /// before `now`. If it also needs the shard between `now` and `slot`, may_go_now is false.
  NextUse next_use(const Hash128& name, std::uint64_t slot, std::uint64_t now) const noexcept;
  const std::vector<PostedUse>& uses() const noexcept { return uses_; }
  /// Hash of the uses. It is equal for users that need the same shards at the same slots, as the
  /// ranks of a node do.
  std::uint64_t hash() const noexcept { return hash_; }

 private:
  const std::vector<PostedUse> uses_;  // sorted
  const std::uint64_t hash_;
};

/// Another user of the cache: its future uses and its current pace.
struct OtherUser {
  std::shared_ptr<const UserFuture> future;
  UserPace pace;
};

/// Returns when any user next needs a shard, in slots of the calling user. After its epoch, a rank
/// needs nothing until the slowest rank of the same order finishes.
/// @param mine    the caller's own next use of the shard `name`.
/// @param at      slot from which the caller needs the new shard.
/// @param pace    the caller's pace.
/// @param hash    hash of the caller's future.
/// @param now_ns  current time on the machine's monotonic clock.
SHARDWISE_EXPORT NextUse joint_next_use(NextUse mine, const Hash128& name, std::uint64_t at,
                                        const UserPace& pace, std::uint64_t hash,
                                        const std::vector<OtherUser>& others, std::int64_t now_ns);

SHARDWISE_EXPORT std::int64_t monotonic_ns() noexcept;

/// Converts a shard's name from hex to a number.
SHARDWISE_EXPORT Hash128 number_of_name(std::string_view name) noexcept;

/// The file in which a user posts its future uses. The destructor removes the file. If the process
/// is killed, other users ignore the file. After fork(), the child's copy does nothing.
/// Threads: one, except for reach().
class SHARDWISE_EXPORT PostedFuture {
 public:
  /// Errors: kIo, kNoSpace.
  PostedFuture(const std::string& folder, const UserFuture& future, const UserPace& pace);
  ~PostedFuture();
  PostedFuture(const PostedFuture&) = delete;
  PostedFuture& operator=(const PostedFuture&) = delete;

  /// Reports that all slots before `slot` have been read. Cost: one system call.
  void reach(std::uint64_t slot) noexcept;
  /// The file's name without the folder.
  const std::string& file_name() const noexcept { return name_; }

 private:
  const std::string name_;
  const std::string path_;
  AtomicFile file_;
};

/// Reads the futures that other users of a cache have posted. Threads: internally synchronised.
class SHARDWISE_EXPORT FutureBoard {
 public:
  explicit FutureBoard(std::string folder) : folder_(std::move(folder)) {}

  /// Returns the other users. Reads new files, and removes the files of users that have ended.
  /// Never throws; skips unreadable files.
  /// @param own_file  name of the caller's own file, which is skipped.
  std::vector<OtherUser> others(const std::string& own_file) noexcept;
  /// Returns the process ID and the future of each user whose process is visible. Removes no files.
  std::vector<std::pair<std::int64_t, OtherUser>> users_by_process() noexcept;

 private:
  std::optional<OtherUser> read(const std::string& path, const std::string& name);

  const std::string folder_;
  Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const UserFuture>> known_
      SHARDWISE_GUARDED_BY(mutex_);  // by file name
};

/// One user of a cache. It posts its own future and reads the futures of other users. If posting
/// fails, e.g. on a full disk, it still reads the others.
///
/// Threads: safe concurrently.
class SHARDWISE_EXPORT CacheUser {
 public:
  /// @param cache_directory  directory of an open cache that is not read-only.
  CacheUser(const std::string& cache_directory, std::vector<PostedUse> uses, const UserPace& pace);

  /// Reports that all slots before `slot` have been read.
  void reach(std::uint64_t slot) noexcept;
  UserPace pace() const noexcept;
  /// Calls joint_next_use(). The view of the other users may be a few milliseconds old.
  NextUse joint(const NextUse& mine, const std::string& name, std::uint64_t at) const;
  /// Returns the number of other users whose process is alive.
  std::size_t num_others() const { return others()->size(); }

 private:
  using Others = std::shared_ptr<const std::vector<OtherUser>>;
  Others others() const;

  const UserFuture future_;
  const UserPace begun_;
  std::atomic<std::uint64_t> now_;
  std::unique_ptr<PostedFuture> posted_;
  mutable FutureBoard board_;
  mutable Mutex mutex_;
  mutable Others others_ SHARDWISE_GUARDED_BY(mutex_);
  mutable std::int64_t looked_ns_ SHARDWISE_GUARDED_BY(mutex_) = 0;
};

}  // namespace shardwise::detail
