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

/// The number of live Slots in this process. A forked child begins at 0.
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
  /// Returns null if there are `max` already.
  std::unique_ptr<Slot> add_up_to(std::uint64_t max);
  bool is_zero() const;

 private:
  mutable Mutex mutex_;
  mutable PerProcess<std::uint64_t> number_ SHARDWISE_GUARDED_BY(mutex_);
};

/// The shards of a cache that threads of this process have mapped, and those they fetch.
///
/// Threads: internally synchronised.
/// Processes: a forked child fetches nothing.
class CacheReaders {
 public:
  void add_releaser(std::weak_ptr<void> owner, CacheAccess::Releaser releaser);
  /// Asks all releasers to unmap the shard if it is idle; true if one of them did.
  bool ask_to_release(const std::string& name);
  /// True if the shard is in use, e.g. by a batch that has samples of it.
  bool is_in_use(const std::string& name);

  /// Registers a shard whose fetch begins, for readers that follow it.
  std::shared_ptr<ComingShard> begin_coming(const std::string& name);
  /// Returns the shard if it is being fetched and can be followed; else null.
  std::shared_ptr<ComingShard> find_coming(const std::string& name) const;

  LiveCount fetches;
  LiveCount overflows;  ///< shards outside the budget

 private:
  struct Owned {
    std::weak_ptr<void> owner;
    CacheAccess::Releaser ask;
  };
  /// The releasers whose owners live. They take locks, so call them without the mutex.
  std::vector<std::pair<std::shared_ptr<void>, CacheAccess::Releaser>> living();

  mutable Mutex mutex_;
  std::vector<Owned> releasers_ SHARDWISE_GUARDED_BY(mutex_);
  mutable PerProcess<std::map<std::string, std::weak_ptr<ComingShard>>> coming_
      SHARDWISE_GUARDED_BY(mutex_);  // by name
};

}  // namespace shardwise::detail
