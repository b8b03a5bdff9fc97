#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/fork.h"
#include "storage/cache_directory.h"
#include "storage/cache_futures.h"
#include "storage/cache_ledger.h"
#include "storage/cache_locks.h"
#include "storage/cache_metrics.h"
#include "storage/cache_readers.h"
#include "storage/cache_request.h"
#include "storage/eviction.h"

namespace shardwise::detail {

/// Makes room in a cache: evicts shards until the cache, including the shards being fetched, is
/// within its budget.
/// Threads: internally synchronised. Processes: as for threads.
class CacheRoom {
 public:
  CacheRoom(const ShardCache::Options& options, const CacheDirectory& directory, CacheLocks& locks,
            CacheReaders& readers, CacheCounts& counts)
      : ledger(directory),
        options_(options),
        directory_(directory),
        locks_(locks),
        readers_(readers),
        counts_(counts),
        board_(directory.futures_path()) {}

  /// A shard that needs room.
  struct Wanted {
    const CacheRequest& request;
    const std::string& name;
    std::uint64_t size_bytes = 0;
    const NextUseOf& next_use;
    Urgency urgency = Urgency::kNow;
    std::uint64_t needed_at = 0;  ///< for Urgency::kAhead: slot at which the shard is needed
    bool may_overflow = true;     ///< if there is no room, create the file outside the budget
  };
  /// Creates the shard's file, or enlarges it.
  using MakeFile = std::function<void(bool is_overflow)>;

  /// Makes room for a shard, and calls `make_file` with the room byte locked. `make_file` is not
  /// called if the result is kNotNow, or if it is kNone and the shard may not overflow the budget.
  /// If the disk fills up before the budget is reached, the cache's present size replaces the
  /// budget.
  Room make(const Wanted& wanted, const MakeFile& make_file);
  /// Runs `take`, which needs at most `wanted.size_bytes` of disk space. While the disk is full,
  /// evicts shards of at least that size and runs `take` again.
  /// Errors: kNoSpace if no shard may be evicted.
  void with_disk_space(const Wanted& wanted, const std::function<void()>& take);
  /// Errors: kNoSpace if the size exceeds the budget and Options::bypass_large is false.
  void require_within_budget(const CacheRequest& request, std::uint64_t size_bytes) const;

  /// Evicts the shard that has this name but is not the requested version. Returns false if the
  /// shard is still in use after `timeout`.
  /// @param fetching  the caller's lock on the shard's fetch byte.
  bool evict_stale(const ByteLock& fetching, const CacheRequest& request, const std::string& name,
                   std::chrono::milliseconds timeout);
  /// Evicts the shard if no process uses it. Returns false if it is in use.
  bool evict_unused(const std::string& name);
  /// Trims the cache to its budget, once, when the first shard is requested.
  /// @param pinned  name of the requested shard, which is pinned already.
  void trim_once(const std::string& pinned, const NextUseOf& next_use);
  /// Trims the cache to its budget, if it exceeded the budget because shards were in use.
  void trim_overrun(const NextUseOf& next_use);

  /// True if the shard has a complete or a temporary file.
  /// Cost: O(shards) if files changed since the last call.
  bool has_room(const std::string& name);
  /// Removes leftovers of killed processes, and counts the bytes of the remaining files.
  void take_stock();
  void remove_leftovers(const CacheDirectory::Contents& contents) const;

  const CacheLedger ledger;

 private:
  /// A shard that may be evicted to make room.
  struct Candidate : EvictionCandidate {
    Candidate(EvictionCandidate as, CacheDirectory::Shard of)
        : EvictionCandidate(as), shard(std::move(of)) {}
    CacheDirectory::Shard shard;
  };
  struct Survey {
    std::vector<Candidate> shards;  ///< all shards except the new one, in eviction order
    std::uint64_t bytes = 0;        ///< total size of `shards`
    std::uint64_t used_bytes = 0;   ///< total size of all shards, including those being fetched
    CacheLedger::Count before;      ///< state of the ledger before the listing
  };
  /// Chosen victims, whose use bytes are locked.
  struct Plan {
    Survey found;
    ByteLocks locks;
    Eviction eviction;
  };
  /// The candidates that trim() leaves in the cache, but counts as evicted.
  enum class Spare : std::uint8_t {
    kNone,
    kPinned,
    kNeeded,  ///< shards that are pinned, or are needed before the new shard
  };

  /// Lists the files, and determines when each shard except `name` is needed next.
  Survey survey(const std::string& name, const NextUseOf& next_use) const;
  /// Marks the shards that users whose order is unknown may keep, up to their fair share of the
  /// budget.
  void spare_unknown(Survey& found) const;
  /// Marks candidates that could be evicted, but have been pinned for room_timeout.
  void mark_stuck(Survey& found);

  bool make_if_counted(std::uint64_t budget_bytes, const Wanted& wanted, const MakeFile& make_file);
  Room make_within(std::uint64_t budget_bytes, const Wanted& wanted, const MakeFile& make_file);
  Plan make_plan(std::uint64_t budget_bytes, const Wanted& wanted);
  /// Applies the plan. Returns false if the cache has changed since the plan was made.
  /// @param is_last  apply the plan even if the cache has changed.
  bool apply(const Plan& plan, const Wanted& wanted, const MakeFile& make_file, bool is_last);
  /// Evicts candidates in order until the remaining shards take at most `max_bytes`, or are all
  /// pinned.
  /// @param cancel  null means: give up if another process is making room.
  /// @return  the number of bytes evicted; nullopt if the call gave up.
  std::optional<std::uint64_t> trim(const Survey& found, std::uint64_t max_bytes, Spare spare,
                                    const CancelToken* cancel);
  /// Trims the cache to its budget.
  /// @param pinned  name of a shard that must not be evicted; may be empty.
  /// @return  true if the cache is within the budget. With Spare::kNone, also true if only pinned
  ///   shards exceed it.
  bool trim_to_budget(const std::string& pinned, const NextUseOf& next_use, Spare spare);

  /// Tries to lock a candidate's use byte. If that fails, records the time of the first failure.
  [[nodiscard]] bool try_victim(const Candidate& candidate, ByteLocks& locks);
  /// Locks the shard's use byte and adds the lock to `locks`, if neither this process nor another
  /// uses the shard.
  [[nodiscard]] bool try_to_remove(const std::string& name, ByteLocks& locks);
  /// Evicts the victims, whose use bytes are locked.
  void evict(const CacheLocks::Room&, const Survey& found, const std::vector<std::size_t>& victims);
  /// Removes a shard whose use byte is locked, and returns its size. Does not change the ledger.
  std::optional<std::uint64_t> remove(const CacheLocks::Room&, const std::string& name);
  /// Removes a shard, and counts the eviction in the statistics.
  std::int64_t evict(const CacheLocks::Room&, const std::string& name);
  void make_file_of(const CacheLocks::Room&, const Wanted& wanted, const MakeFile& make_file,
                    bool is_overflow, std::optional<std::uint64_t> used_bytes) const;
  /// The bytes that the survey counted; nullopt if the ledger has changed since.
  std::optional<std::uint64_t> counted(const CacheLocks::Room&, const Survey& found) const;

  const ShardCache::Options& options_;
  const CacheDirectory& directory_;
  CacheLocks& locks_;
  CacheReaders& readers_;
  CacheCounts& counts_;
  mutable FutureBoard board_;
  std::atomic<bool> is_trimmed_{false};
  std::atomic<bool> has_overrun_{false};

  Mutex mutex_;
  /// For each evictable shard that is pinned: the time since which it has been pinned, by name.
  std::map<std::string, std::chrono::steady_clock::time_point> stuck_since_
      SHARDWISE_GUARDED_BY(mutex_);
  /// For each shard that had no room: the state of the ledger at that time, by name.
  std::map<std::string, CacheLedger::Count> without_room_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
