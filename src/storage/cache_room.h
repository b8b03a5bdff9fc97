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

/// Makes room in a cache: evicts shards until the others, those being fetched included, are within
/// the budget. Threads and processes: internally synchronised.
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
    bool may_overflow = true;     ///< without room, its file is made outside the budget
  };
  /// Makes the shard's file, or makes it larger.
  using MakeFile = std::function<void(bool is_overflow)>;

  /// Makes room for a shard, and calls `make_file` under the room lock: unless the answer is
  /// kNotNow, or it is kNone and the shard may not overflow the budget.
  /// While the disk is full although the budget is not, shards leave as though it were.
  Room make(const Wanted& wanted, const MakeFile& make_file);
  /// Runs a function that takes `wanted.size_bytes` of the disk, at most. While the disk is full,
  /// shards leave that take as much, and it is run again. Errors: kNoSpace if none may go.
  void with_disk_space(const Wanted& wanted, const std::function<void()>& take);
  /// Errors: kNoSpace.
  void require_within_budget(const CacheRequest& request, std::uint64_t size_bytes) const;

  /// Evicts a shard that has the name and is not the one asked for. False: it was in use for as
  /// long as `timeout`. Called when no right one was found.
  /// @param fetching  the lock to fetch the shard.
  bool evict_stale(const ByteLock& fetching, const CacheRequest& request, const std::string& name,
                   std::chrono::milliseconds timeout);
  /// Evicts a shard that no process uses; false if one does.
  bool evict_unused(const std::string& name);
  /// Trims the cache to its budget when the first shard is asked for, which is pinned now.
  void trim_once(const std::string& pinned, const NextUseOf& next_use);
  /// Evicts what exceeded the budget because it was in use, as far as it no longer is.
  void trim_overrun(const NextUseOf& next_use);

  /// True if room was made for the shard, or it is there. Cost: O(shards) where that may have
  /// changed since the last call.
  bool has_room(const std::string& name);
  /// Removes what killed processes left, and counts what is there.
  void take_stock();
  void remove_leftovers(const CacheDirectory::Contents& contents) const;

  const CacheLedger ledger;

 private:
  /// A shard in the cache that may have to make room.
  struct Candidate : EvictionCandidate {
    Candidate(EvictionCandidate as, CacheDirectory::Shard of)
        : EvictionCandidate(as), shard(std::move(of)) {}
    CacheDirectory::Shard shard;
  };
  struct Survey {
    std::vector<Candidate> shards;  ///< all but one, in the order in which they should leave
    std::uint64_t bytes = 0;        ///< of `shards`
    std::uint64_t used_bytes = 0;   ///< of all that is there, and all that is being fetched
    CacheLedger::Count before;      ///< the listing
  };
  /// Who is to leave, with their use bytes locked.
  struct Plan {
    Survey found;
    ByteLocks locks;
    Eviction eviction;
  };
  /// Which candidates stay for now, and count as evicted.
  enum class Spare : std::uint8_t {
    kNone,
    kPinned,
    kNeeded,  ///< those pinned, and those needed before the new shard
  };

  /// Lists all that is there, and asks when each shard besides `name` is needed.
  Survey survey(const std::string& name, const NextUseOf& next_use) const;
  /// Marks what users of unknown order are to keep: together as much of the budget as others have.
  void spare_unknown(Survey& found) const;
  /// Marks the candidates that others have held for room_timeout although they may go.
  void mark_stuck(Survey& found);

  bool make_if_counted(std::uint64_t budget_bytes, const Wanted& wanted, const MakeFile& make_file);
  Room make_within(std::uint64_t budget_bytes, const Wanted& wanted, const MakeFile& make_file);
  Plan make_plan(std::uint64_t budget_bytes, const Wanted& wanted);
  /// Carries the plan out; false if the cache changed since it was made.
  /// @param is_last  then it is carried out in any case.
  bool apply(const Plan& plan, const Wanted& wanted, const MakeFile& make_file, bool is_last);
  /// Evicts candidates in order until the others take `max_bytes`, or the rest is pinned.
  /// @param cancel  null: gives up if another process makes room now.
  /// @return the bytes evicted; nothing if it gave up.
  std::optional<std::uint64_t> trim(const Survey& found, std::uint64_t max_bytes, Spare spare,
                                    const CancelToken* cancel);
  /// Trims the cache to its budget, but for the shard that is pinned now ("": none). True if it is
  /// within the budget, or all that exceeds it is pinned and nothing was to be spared.
  bool trim_to_budget(const std::string& pinned, const NextUseOf& next_use, Spare spare);

  /// Tries to lock a candidate's use byte, and notes since when it was tried in vain.
  [[nodiscard]] bool try_victim(const Candidate& candidate, ByteLocks& locks);
  /// Adds the right to remove a shard to `locks`, if nobody needs it mapped.
  [[nodiscard]] bool try_to_remove(const std::string& name, ByteLocks& locks);
  /// Evicts shards whose use bytes are locked.
  void evict(const CacheLocks::Room&, const Survey& found, const std::vector<std::size_t>& victims);
  /// Removes a shard whose use byte is locked, and returns its bytes. The ledger stays as it is.
  std::optional<std::uint64_t> remove(const CacheLocks::Room&, const std::string& name);
  /// Removes it, and counts it as evicted.
  std::int64_t evict(const CacheLocks::Room&, const std::string& name);
  void make_file_of(const CacheLocks::Room&, const Wanted& wanted, const MakeFile& make_file,
                    bool is_overflow, std::optional<std::uint64_t> used_bytes) const;
  /// What the survey counted; nothing if something changed since.
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
  /// Shards that may go, but are pinned: since when, by name.
  std::map<std::string, std::chrono::steady_clock::time_point> stuck_since_
      SHARDWISE_GUARDED_BY(mutex_);
  /// Shards that had no room, and the ledger then, by name.
  std::map<std::string, CacheLedger::Count> without_room_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
