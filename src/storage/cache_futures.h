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

// What the users of a shard cache will need, as they tell each other: in files of the cache
// (docs/formats/cache-directory.md), so that nobody evicts what another is about to read. A user is
// one reader of a known order. Its clock are its slots, which differ from user to user; how fast it
// goes through them tells when that will be.

namespace shardwise::detail {

/// The folder of a cache in which users tell what they will need.
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
  std::uint64_t now = 0;             ///< all slots before this one have been read
  std::uint64_t slots_done = 0;      ///< since it began
  std::int64_t began_ns = 0;         ///< of the machine's monotonic clock
  std::uint64_t bytes_per_slot = 0;  ///< of shards, on average
  /// The end of the epoch, where the user waits for others of the same future, as ranks do. 0: it
  /// waits for nobody. It is not told to others.
  std::uint64_t waits_at = 0;
};

/// All that a user will need. Immutable.
class SHARDWISE_EXPORT UserFuture {
 public:
  /// @param uses  any order.
  explicit UserFuture(std::vector<PostedUse> uses);

  /// When the shard is needed, if the user stands at `slot`, and has read all before `now`.
  NextUse next_use(const Hash128& name, std::uint64_t slot, std::uint64_t now) const noexcept;
  const std::vector<PostedUse>& uses() const noexcept { return uses_; }
  /// The same for users that need the same shards at the same slots, as ranks of one node do.
  std::uint64_t hash() const noexcept { return hash_; }

 private:
  const std::vector<PostedUse> uses_;  // sorted
  const std::uint64_t hash_;
};

/// Another user, as it is now.
struct OtherUser {
  std::shared_ptr<const UserFuture> future;
  UserPace pace;
};

/// When a shard is needed next by a user and all others together, in the slots of that user. What
/// ranks of one order need behind the end of their epoch, they need once the slowest is there.
/// @param mine   as the user itself knows it, for a new shard that is needed from slot `at` on.
/// @param pace   of that user; `hash` is of its future.
/// @param now_ns  on the machine's monotonic clock.
SHARDWISE_EXPORT NextUse joint_next_use(NextUse mine, const Hash128& name, std::uint64_t at,
                                        const UserPace& pace, std::uint64_t hash,
                                        const std::vector<OtherUser>& others, std::int64_t now_ns);

SHARDWISE_EXPORT std::int64_t monotonic_ns() noexcept;

/// The number that the text of a shard's name stands for.
SHARDWISE_EXPORT Hash128 number_of_name(std::string_view name) noexcept;

/// The file by which a user tells what it will need; goes with this object, or counts for nothing
/// once its process has ended. One thread, but for reach(). A forked child's copy does nothing.
class SHARDWISE_EXPORT PostedFuture {
 public:
  /// Errors: kIo, kNoSpace.
  PostedFuture(const std::string& folder, const UserFuture& future, const UserPace& pace);
  ~PostedFuture();
  PostedFuture(const PostedFuture&) = delete;
  PostedFuture& operator=(const PostedFuture&) = delete;

  /// All slots before `slot` have been read. Cost: a system call.
  void reach(std::uint64_t slot) noexcept;
  /// Its file, without the folder.
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

  /// Reads what is new, and removes files of users that are gone. Never throws: a file that cannot
  /// be read tells nothing.
  /// @param own_file  is passed over.
  std::vector<OtherUser> others(const std::string& own_file) noexcept;
  /// The process of each user and what it will need; of users whose process can be seen. Removes
  /// nothing.
  std::vector<std::pair<std::int64_t, OtherUser>> users_by_process() noexcept;

 private:
  std::optional<OtherUser> read(const std::string& path, const std::string& name);

  const std::string folder_;
  Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const UserFuture>> known_
      SHARDWISE_GUARDED_BY(mutex_);  // by file name
};

/// A user of a cache, as it and the others of the cache see each other. Where it cannot post its
/// future, as on a full disk, it still sees those of others.
///
/// Threads: safe concurrently.
class SHARDWISE_EXPORT CacheUser {
 public:
  /// @param cache_directory  of a cache that is open.
  /// @param is_read_only  nothing is written, and nobody seen: a cache that evicts nothing needs
  ///   neither.
  CacheUser(const std::string& cache_directory, std::vector<PostedUse> uses, const UserPace& pace,
            bool is_read_only = false);

  /// All slots before `slot` have been read.
  void reach(std::uint64_t slot) noexcept;
  UserPace pace() const noexcept;
  /// As joint_next_use(), of the others as they were some ms ago at most.
  NextUse joint(const NextUse& mine, const std::string& name, std::uint64_t at) const;
  /// Others whose process lives.
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
