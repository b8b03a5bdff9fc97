#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/progress.h"
#include "shardwise/storage/fetcher.h"

namespace shardwise {

// A shard cache: a directory with a byte budget, in which shards that cannot be read where they lie
// (remote ones, compressed ones) are kept as plain tars, shared by all processes of a machine.
//
// docs/formats/cache-directory.md specifies its files, names, records and locks (version 2). A
// shard is identified by its source and its version there. So versions of one shard lie side by
// side, each index gets its own, and the old ones are evicted like all shards that nobody uses.
// Whenever a shard is taken from the cache, its size, time and start are compared with its record;
// where one differs, all of it is read. A shard that has the name but is not the one asked for is
// replaced, but never while somebody uses it: then the right one is fetched to a file of its own.
// The cache deletes nothing but its own files. It leaves a directory of another version as it is
// (VersionMismatch), since processes of that version may be using it.
//
// Locks are freed by the kernel however a process ends. A shard appears by rename, after its bytes
// were checked and synced; a process that is killed leaves at most a temporary file, whose lock is
// free, and which the next one removes.

namespace detail {
class CachedShard;
class ShardFetch;
struct CacheAccess;
}  // namespace detail

/// A shard cache, opened. A shard is fetched once, however many ask for it; the others wait.
///
/// Eviction: when room is needed, shards leave that no process maps. Those whose next use is not
/// known leave first, least recently used first; then the others, farthest next use first (see
/// ShardPrefetcher). If other processes filled the cache beyond this one's budget, it comes down to
/// the budget when the first shard is asked for, and whenever room is made: in that order, and in
/// the end also with shards that are needed now, if nobody maps them.
///
/// Threads and processes: internally synchronised. After fork() the child may go on using it.
/// Fetches of the parent's threads stay the parent's; the child waits for them as other processes
/// do.
class SHARDWISE_EXPORT ShardCache {
 public:
  struct Options {
    std::string directory;
    /// False: a directory that is not there is NotFound.
    bool create = true;
    /// Bytes that the shards in it may take together. While every shard is in use, a process may go
    /// beyond this by the shards that it holds samples of, and by one without room. Samples of
    /// other shards without room are then read from their source; those that cannot be read so, as
    /// compressed ones, lie beside the budget: one each, and more in half as many bytes at most for
    /// all users together. A compressed file takes its own bytes too while it is expanded.
    std::uint64_t budget_bytes = std::uint64_t{64} << 30;
    /// A shard that is larger than the budget is fetched to a file of its own, each time, instead
    /// of being an error.
    bool bypass_large = false;
    /// How long get() waits, while no fetch of this process is running, for the preferred victim to
    /// fall out of use before evicting it anyway; at most ten times this in total.
    std::chrono::milliseconds room_timeout{200};
    /// How long to wait for a process that holds a lock of the cache, and is stopped, as by Ctrl-Z.
    /// One that fetches a shard is waited for, for as long as it may try (its
    /// Fetchers::Options::retry_for); if it cannot be seen, as in another container, for so long
    /// and this process's own `retry_for` after it last wrote.
    std::chrono::milliseconds wait_timeout{120'000};
    /// The fetchers for remote shards; null: the standard ones with their default options.
    std::shared_ptr<const Fetchers> fetchers = nullptr;
    /// Called, on the thread that waits, when a shard has been waited for a second that another
    /// process fetches: once a shard, and once more if that process is stopped.
    /// @param holder  which process, as "process 17 (python3)"; "another process" if it cannot be
    ///                seen.
    std::function<void(const std::string& url, std::chrono::milliseconds waited,
                       const std::string& holder)>
        on_wait = nullptr;
    /// Where metrics() are written for node_exporter: when the cache is opened and closed, and in
    /// between when shards are used, about every 15 seconds. A file of this process alone, which
    /// appears whole, by rename. Empty: nowhere.
    std::string metrics_file = {};
    /// Nothing in the directory is written, neither locks nor times of use: what is there is read,
    /// and a shard that is not is Unsupported. A directory of another user is read by this option
    /// alone. It holds by itself for one of this user's, or of root's, that this user may not write
    /// to.
    bool read_only = false;
    /// The directory is shared with its group: it is made so that members of the group may write to
    /// it, whatever their umask is, and one that is so already is used, whoever owns it. Members
    /// trust each other, but for shards of which the index has hashes: those are checked against
    /// the hashes when this process first opens them, as in every cache to which others may write.
    /// Time of use is kept for a user's own shards, so that eviction between several users goes by
    /// when a shard came where nobody knows its next use.
    bool group_shared = false;
  };

  /// Counts of what this process did with a cache. Bytes are of shards as they lie in the cache,
  /// unless said otherwise.
  struct Stats {
    std::uint64_t hits = 0;
    /// Asked for, and not there: fetched, or waited for, or followed while it came.
    std::uint64_t misses = 0;
    std::uint64_t fetched = 0;          ///< shards fetched by this process, ahead or when asked for
    std::uint64_t fetched_bytes = 0;    ///< of them, as they came from their source
    std::uint64_t wrong = 0;            ///< transfers of what was not the shard; not in `fetched`
    std::uint64_t waits = 0;            ///< waits for a shard that somebody else was fetching
    std::chrono::nanoseconds waited{};  ///< by callers for shards, their own fetching included
    /// Shards that left to make room, or were pruned or removed; not those that were replaced, as
    /// they were damaged or of another version.
    std::uint64_t evicted = 0;
    std::uint64_t evicted_bytes = 0;
    /// For want of room, fetched to a file of their own, or opened to read single samples of them.
    std::uint64_t bypassed = 0;
  };

  /// One shard as `shardwise cache ls` shows it.
  struct Entry {
    std::string name;
    std::string url;             ///< without what may be secret; empty if it is not known
    std::string validator = {};  ///< of the version that it is; empty if it is not known
    std::uint64_t size_bytes = 0;
    std::int64_t last_use_ns = 0;      ///< since the Unix epoch
    std::optional<Hash128> hash = {};  ///< of its bytes, when it was fetched
    bool in_use = false;               ///< some process maps it
    /// Processes of this user that use it, ascending; none of other users and other containers.
    std::vector<std::int64_t> users = {};
    /// Of entries and of coming(): processes that say they will read it, ascending.
    std::vector<std::int64_t> expected_by = {};
    std::int64_t fetcher = 0;  ///< the process that fetches it; 0: none, or it cannot be seen
  };

  struct Check {
    std::uint64_t num_shards = 0;
    std::vector<Entry> damaged;        ///< their bytes are not what was fetched
    std::vector<Entry> unknown;        ///< without a record of their hash
    std::vector<std::string> foreign;  ///< names of files that are not the cache's
  };

  struct Removal {
    std::uint64_t num_shards = 0;
    std::uint64_t bytes = 0;
    std::uint64_t num_in_use = 0;  ///< that stay, because some process maps them
  };

  /// Makes the directory (mode 0700, or 2770 for a group) if there is none, and removes what killed
  /// processes left, unless it is only read.
  /// Errors: InvalidArgument if the directory belongs to another user, and neither read_only nor a
  /// group that shares it says that this is meant; if others may write to it; if it holds files and
  /// is no cache; VersionMismatch; kIo, kNoSpace.
  [[nodiscard]] static std::shared_ptr<ShardCache> open(const Options& options);
  ~ShardCache();
  ShardCache(const ShardCache&) = delete;
  ShardCache& operator=(const ShardCache&) = delete;

  [[nodiscard]] const Options& options() const noexcept;
  /// True by Options::read_only, or because this user may not write to the directory.
  [[nodiscard]] bool is_read_only() const noexcept;

  [[nodiscard]] Stats stats() const;
  /// Bytes of all shards in it, those being fetched included. Cost: O(shards).
  [[nodiscard]] std::uint64_t used_bytes() const;

  /// Whole shards, sorted by last use, oldest first. Cost: O(shards), and a look at the open files
  /// of all processes.
  [[nodiscard]] std::vector<Entry> entries() const;
  /// Shards that are being fetched, by name. Their bytes are those reserved, `last_use_ns` is when
  /// the last byte came, and their URL is known where the file system keeps attributes of files.
  [[nodiscard]] std::vector<Entry> coming() const;
  /// What this process did with the cache, in Prometheus' text format (version 0.0.4).
  [[nodiscard]] std::string metrics() const;
  /// What lies in it, in the same format. Cost: as entries().
  [[nodiscard]] std::string directory_metrics() const;
  /// Reads all shards, and compares them with their hashes.
  [[nodiscard]] Check verify(const CancelToken& cancel = {},
                             const ProgressCallback& progress = {}) const;
  /// Removes shards that were not used lately until they take `max_bytes` or less, and those named.
  /// Errors: Unsupported if it is only read.
  Removal prune(std::uint64_t max_bytes);
  /// Removes one shard, unless it is in use. Errors: as prune().
  bool remove(const std::string& name);

 private:
  friend class detail::CachedShard;
  friend class detail::ShardFetch;
  friend struct detail::CacheAccess;
  struct Impl;
  explicit ShardCache(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace shardwise
