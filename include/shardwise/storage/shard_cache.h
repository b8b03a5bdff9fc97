#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/progress.h"
#include "shardwise/storage/fetcher.h"

namespace shardwise {

// A shard cache is a directory with a byte budget, shared by all processes of a machine. It stores
// remote and compressed shards, which cannot be read in place, as plain tars.
//
// docs/formats/cache-directory.md specifies its files, names, records and locks (version 2). A
// shard is identified by its source and the version that the source states. Several versions of one
// shard may coexist, each for its own index. Unused versions are evicted like other shards. When a
// shard is used, its size, time and first bytes are compared with its record in the cache. If one
// differs, the whole shard is read and checked.
//
// A cached shard with the right name but wrong content is replaced. If a process is using it, the
// shard is fetched to a separate file instead. The cache deletes only its own files. It does not
// change a directory of another format version (VersionMismatch), because processes of that version
// may be using it.
//
// The kernel frees the locks of a process, however it ends. A shard appears by rename(2), after its
// bytes were checked and synced. A killed process leaves at most an unlocked temporary file, which
// the next process removes.

namespace detail {
class CachedShard;
class ShardFetch;
struct CacheAccess;
}  // namespace detail

/// An open shard cache. If several threads and processes request a shard, one of them fetches it
/// and the others wait.
///
/// Eviction: when room is needed, the cache evicts shards that no process maps. It first evicts
///   shards with unknown next use, least recently used first. Then it evicts the shard whose next
///   use is farthest away, see ShardPrefetcher. If other processes exceeded this process's budget,
///   this process evicts down to its budget at its first request and whenever it makes room. It may
///   then even evict unmapped shards that are needed now.
///
/// Threads: internally synchronised.
/// Processes: internally synchronised. A forked child may continue to use it. Fetches by threads of
///   the parent continue in the parent. The child waits for them like other processes.
/// Errors: a cache miss throws the errors of Fetcher::fetch. StaleIndex if the source has another
///   version than the index. CorruptShard if a compressed shard is damaged. kNoSpace if the shard
///   is larger than the budget or the disk is full. kIo after a timeout. Unsupported if the cache
///   is read-only. Cancelled.
class SHARDWISE_EXPORT ShardCache {
 public:
  struct Options {
    std::string directory;
    /// If false, a missing directory is NotFound.
    bool create = true;
    /// Bytes that all shards in the directory may take together. If every shard is in use, a
    /// process may exceed the budget by the shards that its samples pin, plus one shard. It then
    /// reads samples of further shards from the source, one by one.
    ///
    /// Shards whose samples cannot be read one by one, e.g. compressed shards, are stored beyond
    /// the budget. Each process may store one such shard. All users together may store more, up to
    /// half the budget. While a compressed file is expanded, it also takes space.
    std::uint64_t budget_bytes = std::uint64_t{64} << 30;
    /// If true, a shard that is larger than the budget is fetched to a separate file, each time it
    /// is needed. If false, it is an error.
    bool bypass_large = false;
    /// How long a request waits for the preferred victim of eviction to become unused, before the
    /// request exceeds the budget. Time while this process runs a fetch does not count, but the
    /// total wait is at most ten times as long.
    std::chrono::milliseconds room_timeout{200};
    /// How long to wait for a lock of the cache whose holder makes no progress, e.g. because it was
    /// stopped by Ctrl-Z. If the holder is fetching a shard, the wait is as long as the holder may
    /// retry (its Fetchers::Options::retry_for). If the holder is invisible, e.g. in another
    /// container, the wait ends at wait_timeout plus this process's `retry_for` after the holder's
    /// last write.
    std::chrono::milliseconds wait_timeout{120'000};
    /// The fetchers for remote shards. Null means a default Fetchers object.
    std::shared_ptr<const Fetchers> fetchers = nullptr;
    /// Called after waiting one second for a shard that another process fetches. It is called once
    /// per shard, and once more if that process is suspended.
    /// @param holder  the process, e.g. "process 17 (python3)"; "another process" if it is
    ///   invisible.
    /// Threads: called on the waiting thread.
    std::function<void(const std::string& url, std::chrono::milliseconds waited,
                       const std::string& holder)>
        on_wait = nullptr;
    /// The file to which metrics() are written, for node_exporter; empty means none. It is written
    /// when the cache is opened and closed, and about every 15 seconds while shards are used. It is
    /// replaced atomically, and only this process may write it.
    std::string metrics_file = {};
    /// Only read existing shards, and write nothing to the directory, not even locks or times of
    /// use. A missing shard is Unsupported. A directory of another user requires this option. The
    /// option is implied if the directory belongs to this user or root, and this user may not write
    /// to it.
    bool read_only = false;
    /// Share the directory with its group. Members of the group may write to it, whatever their
    /// umask is. An existing shared directory is used even if another user owns it. A process
    /// updates the time of use only of shards that its own user fetched. If the next use of a shard
    /// is unknown, uses by other users therefore do not delay its eviction.
    /// Security: members must trust each other. Only shards whose hashes are in the index are
    ///   checked: when this process first opens such a shard, it compares the shard's bytes with
    ///   the hashes. It does so in every cache to which other users may write.
    bool group_shared = false;
  };

  /// Counts of this process's operations on a cache. Sizes are those of expanded shards unless
  /// stated otherwise.
  struct Stats {
    std::uint64_t hits = 0;
    /// Requests for shards that were not cached: fetched, waited for, or read during the fetch.
    std::uint64_t misses = 0;
    std::uint64_t fetched = 0;          ///< shards fetched by this process, ahead or on demand
    std::uint64_t fetched_bytes = 0;    ///< of these shards, as their sources store them
    std::uint64_t wrong = 0;            ///< fetches that delivered wrong content; not in `fetched`
    std::uint64_t waits = 0;            ///< waits for a shard that others fetched
    std::chrono::nanoseconds waited{};  ///< time that callers waited for shards, including their
                                        ///< own fetches
    /// Shards evicted, pruned or removed. Damaged and outdated shards that were replaced do not
    /// count.
    std::uint64_t evicted = 0;
    std::uint64_t evicted_bytes = 0;
    /// Misses for which the cache had no room. The shard was fetched to a separate file, or opened
    /// to read single samples.
    std::uint64_t bypassed = 0;
  };

  /// One shard, as listed by `shardwise cache ls`.
  struct Entry {
    std::string name;
    std::string url;             ///< without secrets; empty if unknown
    std::string validator = {};  ///< of the cached version; empty if unknown
    std::uint64_t size_bytes = 0;
    std::int64_t last_use_ns = 0;      ///< since the Unix epoch
    std::optional<Hash128> hash = {};  ///< of the shard's bytes when it was fetched
    bool in_use = false;               ///< true if a process maps it
    /// Ids of processes that use it, ascending; only those of this user and container.
    std::vector<std::int64_t> users = {};
    /// For entries() and coming(): ids of processes that announced that they will read it,
    /// ascending.
    std::vector<std::int64_t> expected_by = {};
    std::int64_t fetcher = 0;  ///< id of the fetching process; 0 if it is unknown
  };

  struct Check {
    std::uint64_t num_shards = 0;
    std::vector<Entry> damaged;        ///< shards whose bytes are not what was fetched
    std::vector<Entry> unknown;        ///< shards without a record of their hash
    std::vector<std::string> foreign;  ///< names of files that are not the cache's
  };

  struct Removal {
    std::uint64_t num_shards = 0;
    std::uint64_t bytes = 0;
    std::uint64_t num_in_use = 0;  ///< shards that stay because a process maps them
  };

  /// Opens a cache. Creates the directory if it is missing (mode 0700, or 2770 for a group), and
  /// removes what killed processes left, unless it is read-only.
  /// Errors: InvalidArgument if the directory belongs to another user, unless read_only is set or a
  ///   group shares it. InvalidArgument also if other users may write to it, or if it contains
  ///   files but is not a cache. VersionMismatch. kIo. kNoSpace.
  [[nodiscard]] static std::shared_ptr<ShardCache> open(const Options& options);
  ~ShardCache();
  ShardCache(const ShardCache&) = delete;
  ShardCache& operator=(const ShardCache&) = delete;

  [[nodiscard]] const Options& options() const noexcept;
  /// True if Options::read_only is set, or this user may not write to the directory.
  [[nodiscard]] bool is_read_only() const noexcept;

  [[nodiscard]] Stats stats() const;
  /// Bytes of all shards in the cache, including shards that are being fetched. Cost: O(shards).
  [[nodiscard]] std::uint64_t used_bytes() const;

  /// Complete shards, least recently used first. Cost: O(shards), and a scan of the open files of
  /// all processes.
  [[nodiscard]] std::vector<Entry> entries() const;
  /// Shards that are being fetched, by name. `size_bytes` is the reserved size, and `last_use_ns`
  /// the time when the last byte arrived. The URL is known only if the file system supports
  /// extended attributes.
  [[nodiscard]] std::vector<Entry> coming() const;
  /// Metrics of this process's use of the cache, in Prometheus' text format (version 0.0.4).
  [[nodiscard]] std::string metrics() const;
  /// Metrics of the directory's content, in the same format. Cost: see entries().
  [[nodiscard]] std::string directory_metrics() const;
  /// Reads all shards and checks them against their hashes.
  [[nodiscard]] Check verify(const CancelToken& cancel = {},
                             const ProgressCallback& progress = {}) const;
  /// Removes shards that no process uses, least recently used first, until all shards take at most
  /// `max_bytes`.
  /// Errors: Unsupported if the cache is read-only.
  Removal prune(std::uint64_t max_bytes);
  /// Removes one shard. Returns false if it is in use or missing. Errors: see prune().
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
