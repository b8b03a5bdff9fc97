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

/// Makes room in a cache: evicts shards until the others, including those being fetched, are within
/// the budget.
/// Threads: internally synchronised. Processes: as threads.
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
        board_(futures_folder(options.directory)) {}

  /// A shard that needs room.
  struct Wanted {
    const CacheRequest& request;
    const std::string& name;
    std::uint64_t size_bytes = 0;
    const NextUseOf& next_use;
    Urgency urgency = Urgency::kNow;
    std::uint64_t needed_at = 0;  ///< kAhead: the slot
    bool may_overflow = true;     ///< without room, make the file outside the budget
  };
  /// Makes the shard's file, or enlarges it.
  using MakeFile = std::function<void(bool is_overflow)>;

  /// Makes room for a shard, and calls `make_file` under the room lock. It is not called on
  /// kNotNow, nor on kNone if the shard may not overflow the budget. If the disk fills up before
  /// the budget is reached, the bytes in the cache now serve as the budget.
  Room make(const Wanted& wanted, const MakeFile& make_file);
  /// Runs `take`, which needs at most `wanted.size_bytes` of disk space. While the disk is full,
  /// evicts shards of that size and runs it again.
  /// Errors: kNoSpace if no shard may be evicted.
  void with_disk_space(const Wanted& wanted, const std::function<void()>& take);
  /// Errors: kNoSpace.
  void require_within_budget(const CacheRequest& request, std::uint64_t size_bytes) const;

  /// Evicts a shard that has the name but is not the wanted version. Returns false if it stays in
  /// use for `timeout`.
  /// @param fetching  the lock to fetch the shard.
  bool evict_stale(const ByteLock& fetching, const CacheRequest& request, const std::string& name,
                   std::chrono::milliseconds timeout);
  /// Evicts a shard that no process uses; returns false if it is in use.
  bool evict_unused(const std::string& name);
  /// Trims the cache to its budget, once, when the first shard is asked for.
  /// @param pinned  name of that shard, which is pinned now.
  void trim_once(const std::string& pinned, const NextUseOf& next_use);
  /// Evicts what exceeded the budget because it was in use, if that is no longer so.
  void trim_overrun(const NextUseOf& next_use);

  /// True if the shard has a file, whole or temporary.
  /// Cost: O(shards) if files changed since the last call.
  bool has_room(const std::string& name);
  /// Removes leftovers of killed processes, and counts the files.
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
    std::vector<Candidate> shards;  ///< all but one, in eviction order
    std::uint64_t bytes = 0;        ///< of `shards`
    std::uint64_t used_bytes = 0;   ///< of all shards, including those being fetched
    CacheLedger::Count before;      ///< the ledger before the listing
  };
  /// The victims, with their use bytes locked.
  struct Plan {
    Survey found;
    ByteLocks locks;
    Eviction eviction;
  };
  /// The candidates that stay for now, and count as evicted.
  enum class Spare : std::uint8_t {
    kNone,
    kPinned,
    kNeeded,  ///< pinned, or needed before the new shard
  };

  /// Lists the files, and asks when each shard except `name` is needed.
  Survey survey(const std::string& name, const NextUseOf& next_use) const;
  /// Marks what users of unknown order may keep: their fair share of the budget.
  void spare_unknown(Survey& found) const;
  /// Marks candidates that may be evicted, but have been pinned by others for room_timeout.
  void mark_stuck(Survey& found);

  bool make_if_counted(std::uint64_t budget_bytes, const Wanted& wanted, const MakeFile& make_file);
  Room make_within(std::uint64_t budget_bytes, const Wanted& wanted, const MakeFile& make_file);
  Plan make_plan(std::uint64_t budget_bytes, const Wanted& wanted);
  /// Applies the plan; returns false if the cache changed since it was made.
  /// @param is_last  apply it in any case.
  bool apply(const Plan& plan, const Wanted& wanted, const MakeFile& make_file, bool is_last);
  /// Evicts candidates in order until the others take `max_bytes`, or the rest is pinned.
  /// @param cancel  null means: give up if another process makes room now.
  /// @return  the bytes evicted; nullopt if it gave up.
  std::optional<std::uint64_t> trim(const Survey& found, std::uint64_t max_bytes, Spare spare,
                                    const CancelToken* cancel);
  /// Trims the cache to its budget.
  /// @param pinned  name of a shard that is not evicted; may be empty.
  /// @return  true if the cache is within the budget. With Spare::kNone, pinned shards may exceed
  ///   it.
  bool trim_to_budget(const std::string& pinned, const NextUseOf& next_use, Spare spare);

  /// Tries to lock a candidate's use byte, and records since when that has failed.
  [[nodiscard]] bool try_victim(const Candidate& candidate, ByteLocks& locks);
  /// Adds the lock on the shard's use byte to `locks`, if the shard is idle in this process and
  /// others.
  [[nodiscard]] bool try_to_remove(const std::string& name, ByteLocks& locks);
  /// Evicts shards whose use bytes are locked.
  void evict(const CacheLocks::Room&, const Survey& found, const std::vector<std::size_t>& victims);
  /// Removes a shard whose use byte is locked, and returns its bytes. Does not change the ledger.
  std::optional<std::uint64_t> remove(const CacheLocks::Room&, const std::string& name);
  /// Removes a shard, and counts it as evicted.
  std::int64_t evict(const CacheLocks::Room&, const std::string& name);
  void make_file_of(const CacheLocks::Room&, const Wanted& wanted, const MakeFile& make_file,
                    bool is_overflow, std::optional<std::uint64_t> used_bytes) const;
  /// The bytes that the survey counted; nullopt if something changed since.
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
  /// Since when shards that may be evicted have been pinned, by name.
  std::map<std::string, std::chrono::steady_clock::time_point> stuck_since_
      SHARDWISE_GUARDED_BY(mutex_);
  /// Shards that had no room, and the ledger at that time, by name.
  std::map<std::string, CacheLedger::Count> without_room_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
