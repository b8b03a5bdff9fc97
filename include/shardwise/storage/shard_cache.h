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

// A shard cache is a directory with a byte budget, shared by all processes of a machine. It stores
// remote and compressed shards, which cannot be read in place, as plain tars.
//
// docs/formats/cache-directory.md specifies its files, names, records and locks (version 2). A
// shard is identified by its source and its version there. Several versions of one shard may
// coexist, each used by its own index; unused versions are evicted like other shards. When a shard
// is used, its size, time and first bytes are compared with its record. If one differs, the whole
// shard is read and checked.
//
// A cached shard with the right name but wrong content is replaced. While a process uses it, the
// right one is fetched to a separate file instead. The cache deletes only its own files. A
// directory of another version is left alone (VersionMismatch), since processes of that version may
// be using it.
//
// The kernel frees locks however a process ends. A shard appears by rename, after its bytes were
// checked and synced. A killed process leaves at most a temporary file with a free lock, which the
// next process removes.

namespace detail {
class CachedShard;
class ShardFetch;
struct CacheAccess;
}  // namespace detail

/// An open shard cache. Each shard is fetched once, however many threads and processes request it;
/// the others wait.
///
/// Eviction: when room is needed, shards that no process maps are evicted. Shards with unknown next
///   use go first, least recently used first. Then the shard whose next use is farthest away goes
///   first, see ShardPrefetcher. If other processes exceeded this process's budget, the cache
///   evicts down to the budget at the first request and whenever it makes room. This may even evict
///   unmapped shards that are needed now.
///
/// Threads: internally synchronised.
/// Processes: internally synchronised. A forked child may continue to use it. Fetches that the
///   parent's threads run remain with the parent; the child waits for them like other processes.
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
    /// process may exceed the budget by the shards that its samples pin, and by one more shard.
    /// Samples of further shards are then read from the source one by one.
    ///
    /// Shards that cannot be read like that, e.g. compressed ones, are stored outside the budget.
    /// Each process may have one of these. More are possible up to half the budget, for all users
    /// together. A compressed file takes extra bytes while it is expanded.
    std::uint64_t budget_bytes = std::uint64_t{64} << 30;
    /// Fetch a shard that is larger than the budget to a separate file, each time it is needed. If
    /// false, such a shard is an error.
    bool bypass_large = false;
    /// How long a request waits until the preferred victim is no longer in use, before it exceeds
    /// the budget. The time counts only while this process runs no fetch. In total it is at most
    /// ten times as long.
    std::chrono::milliseconds room_timeout{200};
    /// How long to wait for a lock of the cache whose holder makes no progress, e.g. because it was
    /// stopped by Ctrl-Z. A process that fetches a shard is waited for as long as it may retry (its
    /// Fetchers::Options::retry_for). If that process is invisible, e.g. in another container, the
    /// limit is wait_timeout plus this process's `retry_for` after its last write.
    std::chrono::milliseconds wait_timeout{120'000};
    /// The fetchers for remote shards. Null means default ones.
    std::shared_ptr<const Fetchers> fetchers = nullptr;
    /// Called after waiting one second for a shard that another process fetches. It is called once
    /// per shard, and once more if that process is stopped.
    /// @param holder  the process, e.g. "process 17 (python3)"; "another process" if it is
    ///   invisible.
    /// Threads: called on the waiting thread.
    std::function<void(const std::string& url, std::chrono::milliseconds waited,
                       const std::string& holder)>
        on_wait = nullptr;
    /// Where to write metrics() for node_exporter; empty means nowhere. Written when the cache is
    /// opened and closed, and about every 15 seconds while shards are used. The file belongs to
    /// this process alone, and is replaced atomically.
    std::string metrics_file = {};
    /// Read existing shards only, and write nothing to the directory, not even locks or times of
    /// use. A missing shard is Unsupported. The directory of another user requires this option. It
    /// is implied if the directory belongs to this user or root, and this user may not write to it.
    bool read_only = false;
    /// Share the directory with its group. Members of the group may write to it, whatever their
    /// umask is. A directory that is already shared is used, even if another user owns it. Times of
    /// use are kept only for a user's own shards. Between several users, shards with unknown next
    /// use are evicted by their time of arrival.
    /// Security: members trust each other, except for shards whose hashes are in the index. These
    ///   shards are checked against their hashes when this process first opens them, as in any
    ///   cache to which other users may write.
    bool group_shared = false;
  };

  /// Counts of what this process did with a cache. Bytes are in cached form unless stated
  /// otherwise.
  struct Stats {
    std::uint64_t hits = 0;
    /// Requests for shards that were not cached: fetched, waited for, or read during the fetch.
    std::uint64_t misses = 0;
    std::uint64_t fetched = 0;          ///< shards fetched by this process, ahead or on demand
    std::uint64_t fetched_bytes = 0;    ///< of these shards, in the form of their source
    std::uint64_t wrong = 0;            ///< transfers with wrong content; not in `fetched`
    std::uint64_t waits = 0;            ///< waits for a shard that others fetched
    std::chrono::nanoseconds waited{};  ///< time that callers waited, including their own fetches
    /// Shards evicted, pruned or removed. Damaged and outdated shards that were replaced do not
    /// count.
    std::uint64_t evicted = 0;
    std::uint64_t evicted_bytes = 0;
    /// Misses without room: fetched to a separate file, or opened to read single samples.
    std::uint64_t bypassed = 0;
  };

  /// One shard, as listed by `shardwise cache ls`.
  struct Entry {
    std::string name;
    std::string url;             ///< without secrets; empty if unknown
    std::string validator = {};  ///< of the cached version; empty if unknown
    std::uint64_t size_bytes = 0;
    std::int64_t last_use_ns = 0;      ///< since the Unix epoch
    std::optional<Hash128> hash = {};  ///< of its bytes, as they were fetched
    bool in_use = false;               ///< true if a process maps it
    /// Processes of this user and container that use it, ascending.
    std::vector<std::int64_t> users = {};
    /// For entries() and coming(): processes that announced that they will read it, ascending.
    std::vector<std::int64_t> expected_by = {};
    std::int64_t fetcher = 0;  ///< the fetching process; 0 if it is unknown
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
  ///   group shares it. InvalidArgument if other users may write to it, or if it contains files but
  ///   is not a cache. VersionMismatch. kIo. kNoSpace.
  [[nodiscard]] static std::shared_ptr<ShardCache> open(const Options& options);
  ~ShardCache();
  ShardCache(const ShardCache&) = delete;
  ShardCache& operator=(const ShardCache&) = delete;

  [[nodiscard]] const Options& options() const noexcept;
  /// True if Options::read_only is set, or this user may not write to the directory.
  [[nodiscard]] bool is_read_only() const noexcept;

  [[nodiscard]] Stats stats() const;
  /// Bytes of all shards in the cache, including those being fetched. Cost: O(shards).
  [[nodiscard]] std::uint64_t used_bytes() const;

  /// Complete shards, least recently used first. Cost: O(shards), and a scan of the open files of
  /// all processes.
  [[nodiscard]] std::vector<Entry> entries() const;
  /// Shards that are being fetched, by name. `size_bytes` is what is reserved, and `last_use_ns`
  /// when the last byte arrived. The URL is known if the file system supports extended attributes.
  [[nodiscard]] std::vector<Entry> coming() const;
  /// Metrics of this process's use of the cache, in Prometheus' text format (version 0.0.4).
  [[nodiscard]] std::string metrics() const;
  /// Metrics of the directory's content, in the same format. Cost: see entries().
  [[nodiscard]] std::string directory_metrics() const;
  /// Reads all shards and checks them against their hashes.
  [[nodiscard]] Check verify(const CancelToken& cancel = {},
                             const ProgressCallback& progress = {}) const;
  /// Removes shards that no process uses, least recently used first, until all take at most
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
