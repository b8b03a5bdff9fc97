#include "data/cache_fill.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <numeric>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/cancel_scope.h"
#include "base/fork.h"
#include "data/dataset_access.h"
#include "order/shard_schedule.h"
#include "order/shard_use.h"
#include "shardwise/data/fetch_plan.h"
#include "storage/cache_futures.h"
#include "storage/cache_request.h"

namespace shardwise::detail {
namespace {

/// Interval between retries while the cache has no room.
constexpr std::chrono::milliseconds kAskAgainForRoom{10};

/// Returns the shards of all parts in the order of their first use; nullopt if the order is
/// unknown.
std::optional<std::vector<std::uint64_t>> by_first_use(const Sampler& sampler,
                                                       const std::vector<std::uint64_t>& starts,
                                                       const CacheFill::Options& options) {
  const RankOptions::Range ranks =
      options.ranks.count > 0 ? options.ranks
                              : RankOptions::Range{.first = 0, .count = sampler.world_size()};
  std::vector<bool> is_seen(starts.size(), false);
  std::vector<std::uint64_t> shards;
  const auto of_epoch = sampler.clone();
  for (std::uint64_t epoch = 0; epoch < options.epochs; ++epoch) {
    // The first epoch begins at the sampler's position; later epochs are whole.
    if (epoch > 0) of_epoch->set_epoch(sampler.epoch() + epoch);
    const auto schedule = ShardSchedule::of(*of_epoch, starts);
    const auto uses = schedule ? schedule->uses(ranks) : std::nullopt;
    if (!uses) return std::nullopt;
    for (const UseInterval& use : uses->uses) {
      if (is_seen[use.shard]) continue;
      is_seen[use.shard] = true;
      shards.push_back(use.shard);
    }
  }
  return shards;
}

/// One run: threads that fetch shards. They decide one at a time, in the order in which the shards
/// are needed.
class Filling {
 public:
  Filling(const CacheFill& fill, const MixedDataset& data, ShardCache& cache,
          const CancelToken& cancel, const ProgressCallback& progress, CacheFill::Outcome& outcome)
      : fill_(fill),
        data_(data),
        cache_(cache),
        cancel_(cancel),
        progress_(progress),
        user_(cache.options().directory, posted(fill), {.began_ns = monotonic_ns()}),
        outcome_(outcome) {
    for (std::size_t i = 0; i < fill.shards.size(); ++i) place_of_.emplace(fill.shards[i].name, i);
    for (const CacheFill::Shard& shard : fill.shards) {
      if (!shard.fits) continue;
      ++at_.num_shards;
      at_.num_bytes += shard.size_bytes;
    }
  }

  void run(unsigned num_threads) {
    WorkerThreads threads;
    try {
      for (unsigned i = 0; i < std::max(num_threads, 1U); ++i) {
        threads.start([this] { work(); }, "sw-fill");
      }
    } catch (...) {
      fail(std::current_exception());
    }
    threads.join();
    const Lock lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  /// Returns the uses to post. Their slots are never reached, so the other users treat the fetched
  /// shards as still needed.
  static std::vector<PostedUse> posted(const CacheFill& fill) {
    std::vector<PostedUse> uses;
    for (std::uint64_t i = 0; i < fill.shards.size(); ++i) {
      if (fill.shards[i].fits) uses.push_back({number_of_name(fill.shards[i].name), i, i + 1});
    }
    return uses;
  }

  void work() {
    try {
      const CancelScope scope(stop_);
      while (fetch_next(CancelScope::joined(cancel_))) {
      }
    } catch (...) {
      fail(std::current_exception());
    }
  }

  void fail(std::exception_ptr error) {
    const Lock lock(mutex_);
    // Errors that stop_ causes in other threads occur later, so the first error is the cause.
    if (!error_) error_ = std::move(error);
    stop_ = true;
  }

  /// Decides on the next shard, and fetches it if possible. Returns false if no shard is left.
  bool fetch_next(const CancelToken& cancel) {
    std::optional<ShardFetch> fetch;
    const CacheFill::Shard* shard = nullptr;
    {
      const Lock decision(deciding_);
      cancel.throw_if_cancelled();
      while (next_ < fill_.shards.size() && !fill_.shards[next_].fits) {
        count(outcome_.left_out, fill_.shards[next_++]);
      }
      if (next_ == fill_.shards.size()) return false;
      shard = &fill_.shards[next_];
      const Ahead answer = decide(*shard, next_, cancel, fetch);
      ++next_;
      if (answer != Ahead::kFetch) {
        finish(answer == Ahead::kPresent ? outcome_.present : outcome_.left_out, *shard);
        return true;
      }
      ++running_;
    }
    struct Running {
      std::atomic<int>& count;
      ~Running() { --count; }
    } running{running_};
    static_cast<void>(fetch->run());
    finish(outcome_.fetched, *shard);
    return true;
  }

  /// Calls CacheAccess::begin_ahead(). While it returns kNotNow, retries until room_timeout has
  /// passed without a running fetch of this run. In that time another process may unpin a victim.
  Ahead decide(const CacheFill::Shard& shard, std::uint64_t at, const CancelToken& cancel,
               std::optional<ShardFetch>& fetch) {
    auto request = DatasetAccess::cache_request(data_.part(shard.part), shard.number);
    request->cancel = cancel;
    const auto next_use = [&](const std::string& name) {
      const auto place = place_of_.find(name);
      NextUse mine;
      if (place != place_of_.end()) {
        mine = {.kind = NextUse::Kind::kAt, .position = place->second, .shard = place->second};
      }
      return user_.joint(mine, name, at);
    };
    using Clock = std::chrono::steady_clock;
    for (auto quiet_since = Clock::now();;) {
      const Ahead answer = CacheAccess::begin_ahead(cache_, *request, at, next_use, fetch);
      if (answer != Ahead::kNotNow) return answer;
      cancel.throw_if_cancelled();
      const auto now = Clock::now();
      if (running_ > 0) quiet_since = now;
      if (now - quiet_since >= cache_.options().room_timeout) return answer;
      std::this_thread::sleep_for(kAskAgainForRoom);
    }
  }

  void count(CacheFill::Count& in, const CacheFill::Shard& shard) {
    const Lock lock(mutex_);
    in.add(shard);
  }
  void finish(CacheFill::Count& in, const CacheFill::Shard& shard) {
    const Lock lock(mutex_);
    in.add(shard);
    ++at_.shards_done;
    at_.bytes_done += shard.size_bytes;
    if (progress_) progress_(at_);
  }

  const CacheFill& fill_;
  const MixedDataset& data_;
  ShardCache& cache_;
  const CancelToken& cancel_;
  const ProgressCallback& progress_;
  CacheUser user_;
  // Position of each shard in the order of need, by name.
  std::unordered_map<std::string, std::uint64_t> place_of_;
  std::atomic<bool> stop_{false};
  std::atomic<int> running_{0};

  LongMutex deciding_;
  std::size_t next_ SHARDWISE_GUARDED_BY(deciding_) = 0;
  Mutex mutex_;
  Progress at_;
  CacheFill::Outcome& outcome_;
  std::exception_ptr error_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace

CacheFill CacheFill::of(const MixedDataset& data, const Sampler& sampler, const Options& options) {
  const FetchPlan::Shards all = FetchPlan::Shards::of(data);
  CacheFill fill;
  auto order = by_first_use(sampler, all.starts, options);
  if (!order) {
    fill.is_order_known = false;
    order.emplace(all.sizes_bytes.size());
    std::iota(order->begin(), order->end(), std::uint64_t{0});
  }
  std::vector<std::uint64_t> first_shard{0};  // number of each part's first shard
  for (std::size_t part = 0; part < data.num_parts(); ++part) {
    first_shard.push_back(first_shard.back() + data.part(part).index().num_shards());
  }
  std::unordered_set<std::string> names;  // used to skip shards that occur in two parts
  std::uint64_t bytes = 0;
  bool is_full = false;
  for (const std::uint64_t shard : *order) {
    const auto after = std::upper_bound(first_shard.begin(), first_shard.end(), shard);
    const auto part = static_cast<std::size_t>(after - first_shard.begin()) - 1;
    const std::uint64_t number = shard - first_shard[part];
    const auto request = DatasetAccess::cache_request(data.part(part), number);
    if (!request) continue;  // the shard is read in place, without the cache
    Shard needed{.part = part,
                 .number = number,
                 .name = CacheAccess::name_of(*request),
                 .size_bytes = all.sizes_bytes[shard]};
    if (!names.insert(needed.name).second) continue;
    // A shard larger than the whole budget is not cached, and takes no room from others.
    if (needed.size_bytes <= options.budget_bytes) {
      is_full = is_full || needed.size_bytes > options.budget_bytes - bytes;
      needed.fits = !is_full;
      if (needed.fits) bytes += needed.size_bytes;
    }
    fill.shards.push_back(std::move(needed));
  }
  return fill;
}

CacheFill::Outcome CacheFill::foreseen(const std::vector<ShardCache::Entry>& entries) const {
  std::unordered_set<std::string> there;
  for (const ShardCache::Entry& entry : entries) there.insert(entry.name);
  Outcome outcome;
  for (const Shard& shard : shards) {
    if (!shard.fits) {
      outcome.left_out.add(shard);
    } else if (there.contains(shard.name)) {
      outcome.present.add(shard);
    } else {
      outcome.fetched.add(shard);
    }
  }
  return outcome;
}

void CacheFill::run(const MixedDataset& data, ShardCache& cache, unsigned threads,
                    const CancelToken& cancel, const ProgressCallback& progress,
                    Outcome& outcome) const {
  Filling(*this, data, cache, cancel, progress, outcome).run(threads);
}

}  // namespace shardwise::detail
