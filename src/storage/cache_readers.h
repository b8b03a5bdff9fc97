#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "storage/cache_request.h"
#include "storage/coming_shard.h"

namespace shardwise::detail {

/// Counts the Slot objects alive in this process. In a forked child the count starts at 0.
/// Threads: internally synchronised.
class LiveCount {
 public:
  /// REQUIRES: the LiveCount outlives the Slot.
  class [[nodiscard]] Slot {
   public:
    explicit Slot(LiveCount& of) : of_(of) {}
    ~Slot() {
      const Lock lock(of_.mutex_);
      if (process_ == process_generation()) --of_.number_.get();
    }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

   private:
    LiveCount& of_;
    const std::uint64_t process_ = process_generation();
  };
  std::unique_ptr<Slot> add() { return add_up_to(~std::uint64_t{0}); }
  /// Counts one more until the Slot is destroyed. Returns null if the count is `max` already.
  std::unique_ptr<Slot> add_up_to(std::uint64_t max);
  bool is_zero() const;

 private:
  mutable Mutex mutex_;
  mutable PerProcess<std::uint64_t> number_ SHARDWISE_GUARDED_BY(mutex_);
};

/// The shards of a cache that this process's threads have mapped, and the shards they are fetching.
///
/// Threads: internally synchronised.
/// Processes: a forked child has no running fetches.
class CacheReaders {
 public:
  void add_releaser(std::weak_ptr<void> owner, CacheAccess::Releaser releaser);
  /// Asks all releasers to unmap the shard if it is idle. Returns true if a releaser unmapped it.
  bool ask_to_release(const std::string& name);
  /// True if the shard is in use, e.g. because a batch refers to its samples.
  bool is_in_use(const std::string& name);

  /// Registers a shard whose fetch begins, so that readers can follow it.
  std::shared_ptr<ComingShard> begin_coming(const std::string& name);
  /// Returns the shard if it is being fetched and can be followed; otherwise null.
  std::shared_ptr<ComingShard> find_coming(const std::string& name) const;

  LiveCount fetches;
  LiveCount overflows;  ///< shards fetched outside the budget

 private:
  struct Owned {
    std::weak_ptr<void> owner;
    CacheAccess::Releaser ask;
  };
  /// Returns the releasers whose owners still exist. Releasers take locks, so call them without
  /// holding the mutex.
  std::vector<std::pair<std::shared_ptr<void>, CacheAccess::Releaser>> living();

  mutable Mutex mutex_;
  std::vector<Owned> releasers_ SHARDWISE_GUARDED_BY(mutex_);
  mutable PerProcess<std::map<std::string, std::weak_ptr<ComingShard>>> coming_
      SHARDWISE_GUARDED_BY(mutex_);  // by name
};

}  // namespace shardwise::detail
