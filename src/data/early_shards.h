#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/fork.h"
#include "data/open_shard.h"
#include "shardwise/base/cancel.h"
#include "shardwise/index/index.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_request.h"
#include "storage/shard_handle.h"

namespace shardwise::detail {

/// The remote shards of a dataset of which samples are read before they are whole.
///
/// Such a sample is a view of the file that the shard is being fetched into. What is checked before
/// it is given out is the sample alone: its headers, and its bytes where the index has hashes.
/// So only plain shards come into question of which no hash of the whole is to be held to, unless
/// its members have hashes too; and only those that take long to come.
///
/// If nobody in this process fetches the shard, a thread of this does, up to kMaxThreads of them.
/// They end with it: what has not come whole then is dropped.
///
/// Threads: internally synchronised. Processes: a forked child begins with no such shard.
class EarlyShards {
 public:
  /// A shard below this size is waited for as a whole.
  static constexpr std::uint64_t kMinBytes = std::uint64_t{8} << 20;
  static constexpr std::size_t kMaxThreads = 4;

  /// @param cache   null: no shard comes early.
  /// @param cancel  ends fetching and waiting.
  EarlyShards(std::shared_ptr<const Index> index, std::shared_ptr<ShardCache> cache,
              const CancelToken& cancel);
  ~EarlyShards();
  EarlyShards(const EarlyShards&) = delete;
  EarlyShards& operator=(const EarlyShards&) = delete;

  using Handle = ShardHandle<OpenShard>;
  /// The shard, if samples of it can be had now or before it is whole; its fetch is begun if nobody
  /// has. No handle: it has to be opened as a whole. What it gives has no `data`.
  /// @param next_use_of  makes what CacheAccess::get() asks; called at most once.
  /// Errors: as CacheAccess::follow; CorruptIndex.
  Handle follow(std::uint64_t number, const std::function<NextUseOf()>& next_use_of);
  /// Waits for the bytes of a sample of such a shard, and checks them. Null: the shard is to be
  /// opened as a whole, which will tell what is wrong.
  /// Errors: Cancelled; what ended the fetch that follow() began.
  std::shared_ptr<const OwnBytes> bytes_of(std::uint64_t number, const OpenShard& shard,
                                           std::uint32_t local);
  /// True for a shard that came, and is not open as a whole yet.
  bool has_followed(std::uint64_t number) const;
  /// Lets go of a shard that is open as a whole.
  void forget(std::uint64_t number) noexcept;
  /// Lets go of a shard that came, for a cache that needs room; true if it did.
  bool release(const std::string& name) noexcept;

 private:
  /// A fetch by a thread of this.
  struct Fetch {
    explicit Fetch(std::uint64_t of) : number(of) {}
    ~Fetch() { threads.join(); }
    const std::uint64_t number;
    WorkerThreads threads;
    bool is_over = false;        // guarded by mutex_, as is:
    std::exception_ptr failure;  // why it failed
  };

  [[nodiscard]] bool may_come_early(const Index::Shard& info) const;
  Handle begin(std::uint64_t number, const Index::Shard& info,
               const std::function<NextUseOf()>& next_use_of);
  bool start(std::uint64_t number, ShardFetch&& fetch);
  /// Waits until the fetch of this shard that this began is over, and throws why it failed.
  void await(std::uint64_t number);
  Fetch* find_fetch(std::uint64_t number) SHARDWISE_REQUIRES(mutex_);

  const std::shared_ptr<const Index> index_;
  const std::shared_ptr<ShardCache> cache_;
  const CancelToken cancel_;
  std::atomic<bool> stop_{false};
  mutable Mutex mutex_;
  Condition changed_;
  std::map<std::uint64_t, Handle> followed_ SHARDWISE_GUARDED_BY(mutex_);
  // That a thread is about to follow.
  PerProcess<std::set<std::uint64_t>> beginning_ SHARDWISE_GUARDED_BY(mutex_);
  std::list<std::unique_ptr<Fetch>> fetches_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
