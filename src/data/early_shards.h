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

/// The remote shards of a dataset whose samples can be read before the whole shard has arrived.
///
/// An early sample is a view of the file into which the shard is being fetched. Only the sample
/// itself is checked: its headers, and its bytes if the index has hashes. A shard is eligible if it
/// is uncompressed and large. If the index has a hash of the whole shard, it must also have hashes
/// of the members.
///
/// If this process is not fetching the shard yet, a thread of this object fetches it; there are at
/// most kMaxThreads such threads. The threads end when this object is destroyed, and incomplete
/// shards are discarded.
///
/// Threads: internally synchronised.
/// Processes: a forked child starts without any followed shards.
class EarlyShards {
 public:
  /// A smaller shard is read only after it has been fetched completely.
  static constexpr std::uint64_t kMinBytes = std::uint64_t{8} << 20;
  static constexpr std::size_t kMaxThreads = 4;

  /// @param cache   the dataset's cache; null disables early reading.
  /// @param cancel  stops fetching and waiting.
  EarlyShards(std::shared_ptr<const Index> index, std::shared_ptr<ShardCache> cache,
              const CancelToken& cancel);
  ~EarlyShards();
  EarlyShards(const EarlyShards&) = delete;
  EarlyShards& operator=(const EarlyShards&) = delete;

  using Handle = ShardHandle<OpenShard>;
  /// Returns the shard if its samples can be read before it is complete. Starts to fetch it if no
  /// fetch is running. Otherwise returns an empty handle, and the shard must be opened as a whole.
  /// The returned shard has no `data`.
  /// @param next_use_of  returns the NextUseOf for CacheAccess::follow(); called at most once.
  /// Errors: as CacheAccess::follow; CorruptIndex.
  Handle follow(std::uint64_t number, const std::function<NextUseOf()>& next_use_of);
  /// Waits for the bytes of a sample of a followed shard, and checks them. Returns null if the
  /// shard must be opened as a whole; opening it then reports any error.
  /// Errors: Cancelled; the error of the fetch that follow() began.
  std::shared_ptr<const OwnBytes> bytes_of(std::uint64_t number, const OpenShard& shard,
                                           std::uint32_t local);
  /// True if the shard was followed and has not been opened as a whole yet.
  bool has_followed(std::uint64_t number) const;
  /// Drops a followed shard that has now been opened as a whole.
  void forget(std::uint64_t number) noexcept;
  /// Drops a followed shard whose fetch has ended, because the cache needs room. Returns true if
  /// the shard was dropped.
  bool release(const std::string& name) noexcept;

 private:
  /// One fetch, run by a thread of this object.
  struct Fetch {
    explicit Fetch(std::uint64_t of) : number(of) {}
    ~Fetch() { threads.join(); }
    const std::uint64_t number;
    WorkerThreads threads;
    bool is_over = false;        // guarded by mutex_, like `failure`
    std::exception_ptr failure;  // null if the fetch succeeded
  };

  [[nodiscard]] bool may_come_early(const Index::Shard& info) const;
  Handle begin(std::uint64_t number, const Index::Shard& info,
               const std::function<NextUseOf()>& next_use_of);
  bool start(std::uint64_t number, ShardFetch&& fetch);
  /// Waits until this object's fetch of the shard has ended. Throws the fetch's error.
  void await(std::uint64_t number);
  Fetch* find_fetch(std::uint64_t number) SHARDWISE_REQUIRES(mutex_);

  const std::shared_ptr<const Index> index_;
  const std::shared_ptr<ShardCache> cache_;
  const CancelToken cancel_;
  std::atomic<bool> stop_{false};
  mutable Mutex mutex_;
  Condition changed_;
  std::map<std::uint64_t, Handle> followed_ SHARDWISE_GUARDED_BY(mutex_);
  // Shards that some thread is just starting to follow.
  PerProcess<std::set<std::uint64_t>> beginning_ SHARDWISE_GUARDED_BY(mutex_);
  std::list<std::unique_ptr<Fetch>> fetches_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
