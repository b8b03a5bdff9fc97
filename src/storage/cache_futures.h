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

// Users of a shard cache post which shards they will need, in files of the cache
// (docs/formats/cache-directory.md). A user therefore does not evict what another is about to read.
// A user is one reader of a known order. It counts time in its own slots, and its speed converts
// them to another user's slots.

namespace shardwise::detail {

/// The folder of a cache in which users post what they will need.
std::string futures_folder(const std::string& cache_directory);

/// A shard that a user needs in the slots [begin, end).
struct PostedUse {
  Hash128 name;  ///< CacheAccess::name_of(), as a number
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend auto operator<=>(const PostedUse&, const PostedUse&) = default;
};

/// How far a user is in its order, and how fast.
struct UserPace {
  std::uint64_t now = 0;             ///< the first slot that is not yet read
  std::uint64_t slots_done = 0;      ///< since the user began
  std::int64_t began_ns = 0;         ///< of the machine's monotonic clock
  std::uint64_t bytes_per_slot = 0;  ///< of shards, on average
  /// The end of the epoch, where the user waits for others of the same future, as ranks do. 0 means
  /// it waits for no others. It is not posted.
  std::uint64_t waits_at = 0;
};

/// All uses that a user will make of shards. Immutable.
class SHARDWISE_EXPORT UserFuture {
 public:
  /// @param uses  in any order.
  explicit UserFuture(std::vector<PostedUse> uses);

  /// When the shard is needed, if the user is at `slot` and has read all slots before `now`.
  NextUse next_use(const Hash128& name, std::uint64_t slot, std::uint64_t now) const noexcept;
  const std::vector<PostedUse>& uses() const noexcept { return uses_; }
  /// Equal for users that need the same shards at the same slots, as ranks of one node do.
  std::uint64_t hash() const noexcept { return hash_; }

 private:
  const std::vector<PostedUse> uses_;  // sorted
  const std::uint64_t hash_;
};

/// Another user, as of now.
struct OtherUser {
  std::shared_ptr<const UserFuture> future;
  UserPace pace;
};

/// When a shard is needed next by any user, in slots of one of them. After its epoch, a rank needs
/// nothing until the slowest rank of the same order finishes.
/// @param mine    that user's own next use, given that the new shard is needed from slot `at` on.
/// @param pace    of that user.
/// @param hash    of that user's future.
/// @param now_ns  on the machine's monotonic clock.
SHARDWISE_EXPORT NextUse joint_next_use(NextUse mine, const Hash128& name, std::uint64_t at,
                                        const UserPace& pace, std::uint64_t hash,
                                        const std::vector<OtherUser>& others, std::int64_t now_ns);

SHARDWISE_EXPORT std::int64_t monotonic_ns() noexcept;

/// The number that a shard's name spells in hex.
SHARDWISE_EXPORT Hash128 number_of_name(std::string_view name) noexcept;

/// The file in which a user posts what it will need. This object's destructor removes it; others
/// ignore it once its process has ended. A forked child's copy does nothing.
/// Threads: one, except for reach().
class SHARDWISE_EXPORT PostedFuture {
 public:
  /// Errors: kIo, kNoSpace.
  PostedFuture(const std::string& folder, const UserFuture& future, const UserPace& pace);
  ~PostedFuture();
  PostedFuture(const PostedFuture&) = delete;
  PostedFuture& operator=(const PostedFuture&) = delete;

  /// Reports that all slots before `slot` have been read. Cost: a system call.
  void reach(std::uint64_t slot) noexcept;
  /// The file's name, without the folder.
  const std::string& file_name() const noexcept { return name_; }

 private:
  const std::string name_;
  const std::string path_;
  AtomicFile file_;
};

/// The users of a cache besides one. Threads: internally synchronised.
class SHARDWISE_EXPORT FutureBoard {
 public:
  explicit FutureBoard(std::string folder) : folder_(std::move(folder)) {}

  /// Reads new files, and removes files of users that have ended. Never throws: unreadable files
  /// are skipped.
  /// @param own_file  name of the file to skip.
  std::vector<OtherUser> others(const std::string& own_file) noexcept;
  /// The process and the future of each user whose process is visible. Removes nothing.
  std::vector<std::pair<std::int64_t, OtherUser>> users_by_process() noexcept;

 private:
  std::optional<OtherUser> read(const std::string& path, const std::string& name);

  const std::string folder_;
  Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const UserFuture>> known_
      SHARDWISE_GUARDED_BY(mutex_);  // by file name
};

/// A user of a cache, which posts its own future and sees those of others. If it cannot post its
/// future, e.g. on a full disk, it still sees the others.
///
/// Threads: safe concurrently.
class SHARDWISE_EXPORT CacheUser {
 public:
  /// @param cache_directory  of an open cache.
  /// @param is_read_only  write nothing and see no others: a cache that evicts nothing needs
  ///   neither.
  CacheUser(const std::string& cache_directory, std::vector<PostedUse> uses, const UserPace& pace,
            bool is_read_only = false);

  /// Reports that all slots before `slot` have been read.
  void reach(std::uint64_t slot) noexcept;
  UserPace pace() const noexcept;
  /// Calls joint_next_use() with a view of the others that may be some ms old.
  NextUse joint(const NextUse& mine, const std::string& name, std::uint64_t at) const;
  /// The number of others whose process lives.
  std::size_t num_others() const { return others()->size(); }

 private:
  using Others = std::shared_ptr<const std::vector<OtherUser>>;
  Others others() const;

  const UserFuture future_;
  const UserPace begun_;
  std::atomic<std::uint64_t> now_;
  const bool is_read_only_;
  std::unique_ptr<PostedFuture> posted_;
  mutable FutureBoard board_;
  mutable Mutex mutex_;
  mutable Others others_ SHARDWISE_GUARDED_BY(mutex_);
  mutable std::int64_t looked_ns_ SHARDWISE_GUARDED_BY(mutex_) = 0;
};

}  // namespace shardwise::detail
