#include "shardwise/data/shard_prefetcher.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "data/cache_simulation.h"
#include "data/dataset_access.h"
#include "data/joins.h"
#include "data/open_shard.h"
#include "data/prefetch_schedule.h"
#include "data/shard_future.h"
#include "order/shard_schedule.h"
#include "order/shard_use.h"
#include "storage/cache_futures.h"
#include "storage/cache_request.h"

namespace shardwise {
namespace {

// PrefetchSchedule chooses the next shard to fetch, the crew's threads fetch it, and ShardFuture
// tells the cache when each shard is needed.
//
// There are two mutexes; Crew::deciding is locked before Impl::mutex. `mutex` guards the state of
// the epoch, and is held only briefly. `deciding` is held during begin_ahead(), which may take long
// (files, locks of other processes, perhaps a request). The shards that are evicted for a new shard
// depend on the shards that were fetched before. Decisions are therefore made one at a time, in the
// order of uses. No mutex is held during a fetch, so fetch_threads shards are fetched concurrently.
// decide() locks `mutex` twice, and another epoch may begin in between. It detects this because
// `future` has changed, and does not change the new schedule.
//
// `deciding` is a LongMutex, so a forked child may find it locked by a thread that does not exist
// in the child. It is therefore a member of Crew, which the child abandons (require_crew()).

/// Interval between retries. Other processes release shards without notifying this process.
constexpr std::chrono::milliseconds kAskAgain{20};

/// Maximum number of attempts to close a shard after its use. One attempt is made each time another
/// use begins or ends.
constexpr int kMaxTriesToClose = 16;

std::shared_ptr<const detail::CachedNames> names_of(const Dataset& data) {
  auto names = std::make_shared<detail::CachedNames>();
  for (std::uint64_t shard = 0; shard < data.index().num_shards(); ++shard) {
    if (const auto request = DatasetAccess::cache_request(data, shard)) {
      names->emplace(CacheAccess::name_of(*request), shard);
    }
  }
  return names;
}

/// Returns the uses of consecutive epochs, with the names of the shards in the cache.
std::vector<detail::PostedUse> posted_uses(const detail::CachedNames& names,
                                           std::span<const EpochSchedule> epochs) {
  std::unordered_map<std::uint64_t, Hash128> by_number;
  for (const auto& [name, shard] : names) by_number.emplace(shard, detail::number_of_name(name));
  std::vector<detail::PostedUse> uses;
  std::uint64_t first_slot = 0;
  for (const EpochSchedule& epoch : epochs) {
    for (const UseInterval& use : epoch.uses) {
      const auto named = by_number.find(use.shard);
      if (named == by_number.end()) continue;  // the shard is read in place
      uses.push_back({named->second, first_slot + use.begin, first_slot + use.end});
    }
    first_slot += epoch.num_slots;
  }
  return uses;
}

/// Shards that were fetched ahead. They are pinned until their use ends.
/// Threads: internally synchronised.
class PinnedShards {
 public:
  void pin(std::uint64_t shard, CachedShard cached) {
    const Lock lock(mutex_);
    pinned_.insert_or_assign(shard, std::move(cached));
  }
  std::size_t size() const {
    const Lock lock(mutex_);
    return pinned_.size();
  }
  /// Unpins the shards for which `may_go` returns true. Returns true if any shard was unpinned.
  template <class MayGo>
  bool unpin_if(const MayGo& may_go) {
    std::vector<CachedShard> gone;  // unpinned after the mutex is released
    const Lock lock(mutex_);
    for (auto at = pinned_.begin(); at != pinned_.end();) {
      if (!may_go(at->first, at->second)) {
        ++at;
        continue;
      }
      gone.push_back(std::move(at->second));
      at = pinned_.erase(at);
    }
    return !gone.empty();
  }

 private:
  mutable Mutex mutex_;
  std::map<std::uint64_t, CachedShard> pinned_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace

struct ShardPrefetcher::Impl {
  /// @param side  null to fetch the shards of `dataset`. Otherwise a join of `dataset`: the shards
  ///   of the joined dataset are fetched.
  Impl(const Dataset& dataset, const Sampler& sampler, const ShardPrefetcher::Options& prefetch,
       const detail::JoinSide* side = nullptr)
      : data(side == nullptr ? dataset : side->other), options(prefetch) {
    if (!data.cache() || data.cache()->is_read_only()) return;
    names = names_of(data);
    if (names->empty()) return;
    if (options.node.count == 0) options.node = {.first = sampler.rank(), .count = 1};
    starts = dataset.shard_starts();
    if (side != nullptr) met = detail::shards_met(dataset, *side);
    // The cache calls this only for shards that are needed later than the shard that needs room.
    CacheAccess::add_releaser(
        *data.cache(), pinned, {.release = [all = pinned.get()](const std::string& name) {
          return all->unpin_if(
              [&](std::uint64_t, const CachedShard& s) { return s.name() == name; });
        }});
    try {
      begin_epoch(sampler);
    } catch (...) {
      stop();
      follow(nullptr);
      throw;
    }
  }

  ~Impl() {
    stop();
    follow(nullptr);
  }

  void stop() {
    if (!crew) return;
    cancel = true;
    {
      const Lock lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    const bool is_crew_here = crew->threads.are_here();
    crew->threads.join();
    if (!is_crew_here) static_cast<void>(crew.release());  // leak it, see require_crew()
    pinned->unpin_if([](std::uint64_t, const CachedShard&) { return true; });
  }

  /// The threads that fetch, and the mutex that they hold for a long time.
  struct Crew {
    LongMutex deciding;  // held for one decision at a time, in the order of uses
    WorkerThreads threads;
  };
  /// Starts the threads if this process has none, e.g. after a fork.
  void require_crew();

  std::optional<EpochSchedule> uses_of(const Sampler& sampler) const {
    const auto shards = ShardSchedule::of(sampler, starts);
    auto uses = shards ? shards->uses(options.node, options.window) : std::nullopt;
    return uses && met ? met->uses(*uses) : uses;
  }

  void begin_epoch(const Sampler& sampler);
  /// Makes the dataset follow this future instead of the previous one; null removes the previous
  /// one.
  void follow(const std::shared_ptr<const detail::ShardFuture>& known);
  void reached(std::uint64_t slot);
  void note_read(std::uint64_t slot) noexcept SHARDWISE_EXCLUDES(mutex);
  /// True if the shard is being read now, or may be fetched ahead.
  bool is_wanted(std::uint64_t shard) SHARDWISE_EXCLUDES(mutex);
  void run(Crew& of);
  bool is_needed(std::uint64_t shard, std::uint64_t slot) SHARDWISE_EXCLUDES(mutex);
  std::shared_ptr<const detail::ShardFuture> current() SHARDWISE_EXCLUDES(mutex) {
    const Lock lock(mutex);
    return future;
  }
  bool fetch_next(Crew& of) SHARDWISE_EXCLUDES(of.deciding, mutex);
  struct Decision {
    bool is_made = true;  ///< false if the shard cannot be fetched yet
    std::uint64_t shard = 0;
    std::optional<ShardFetch> fetch = {};
  };
  Decision decide() SHARDWISE_EXCLUDES(mutex);
  bool has_its_share(const detail::ShardFuture& known) const;
  std::shared_ptr<detail::CacheUser> post(std::span<const EpochSchedule> epochs,
                                          std::uint64_t slot);

  const Dataset data;
  ShardPrefetcher::Options options;
  std::shared_ptr<const detail::CachedNames> names;
  std::vector<std::uint64_t> starts;     // shard starts; in a join, those of the first dataset
  std::optional<detail::ShardsMet> met;  // set if `data` is joined to another dataset
  // Number of this rank's share. Replicas form one share.
  std::uint64_t share = 0;
  std::uint64_t num_shares = 1;
  const std::shared_ptr<PinnedShards> pinned = std::make_shared<PinnedShards>();
  // Future that the dataset follows; used only by the reading thread.
  std::shared_ptr<const detail::ShardFuture> followed;
  const std::int64_t began_ns = detail::monotonic_ns();
  // Shards, with the remaining attempts to close them; used only by the reading thread.
  std::map<std::uint64_t, int> to_close;
  std::atomic<std::uint64_t> mean_bytes{0};  // mean size of a shard in use

  Mutex mutex;
  Condition changed;
  bool stopping SHARDWISE_GUARDED_BY(mutex) = false;
  std::shared_ptr<detail::ShardFuture> future SHARDWISE_GUARDED_BY(mutex);
  detail::PrefetchSchedule schedule SHARDWISE_GUARDED_BY(mutex);  // uses of this epoch and the next
  std::atomic<std::uint64_t> next_change{0};  // slot where the next use begins or ends

  std::atomic<bool> cancel{false};
  std::unique_ptr<Crew> crew;
};

void ShardPrefetcher::Impl::require_crew() {
  if (crew && crew->threads.are_here()) return;
  // Leak the parent's crew: its mutex may be locked, and a locked mutex cannot be destroyed.
  static_cast<void>(crew.release());
  crew = std::make_unique<Crew>();
  for (unsigned i = 0; i < options.fetch_threads; ++i) {
    crew->threads.start([this, of = crew.get()] { run(*of); }, "sw-fetch");
  }
}

/// Posts to the other users of the cache which shards this user needs from `slot` on.
std::shared_ptr<detail::CacheUser> ShardPrefetcher::Impl::post(
    std::span<const EpochSchedule> epochs, std::uint64_t slot) {
  detail::UserPace pace{.now = slot, .began_ns = began_ns};
  {
    const Lock lock(mutex);
    if (future) pace.slots_done = future->user().pace().slots_done;
  }
  std::uint64_t bytes = 0;
  for (const UseInterval& use : epochs.front().uses) {
    bytes += data.index().shard(use.shard).expanded_bytes;
  }
  mean_bytes = bytes / std::max<std::uint64_t>(epochs.front().uses.size(), 1);
  if (options.node.count > 1) pace.waits_at = epochs.front().num_slots;
  pace.bytes_per_slot = bytes / std::max<std::uint64_t>(epochs.front().num_slots, 1);
  return std::make_shared<detail::CacheUser>(data.cache()->options().directory,
                                             posted_uses(*names, epochs), pace);
}

void ShardPrefetcher::Impl::follow(const std::shared_ptr<const detail::ShardFuture>& known) {
  if (known) {
    DatasetAccess::follow(data, known);
  } else if (followed) {
    DatasetAccess::unfollow(data, followed.get());
  }
  followed = known;
}

bool ShardPrefetcher::Impl::is_wanted(std::uint64_t shard) {
  const Lock lock(mutex);
  if (!future) return false;
  if (future->uses().in_use_until(shard, future->now())) return true;
  return schedule.is_ahead(shard);
}

void ShardPrefetcher::Impl::begin_epoch(const Sampler& sampler) {
  share = sampler.rank() / sampler.replicas();
  num_shares = sampler.world_size() / sampler.replicas();
  std::uint64_t slot = sampler.position() * num_shares + share;
  if (options.window != 0) {
    slot -= share;
    share = 0;
    num_shares = 1;
  }
  std::optional<EpochSchedule> now = uses_of(sampler);
  std::shared_ptr<detail::ShardFuture> known;
  std::vector<UseInterval> all;
  if (now) {
    // Fetch for two epochs, but determine the uses of three. A victim is chosen by its next use,
    // which may be in the third epoch.
    std::array<EpochSchedule, 3> epochs{*std::move(now), {}, {}};
    const auto later = sampler.clone();
    for (std::size_t i = 1; i < epochs.size(); ++i) {
      later->set_epoch(sampler.epoch() + i);
      epochs[i] = uses_of(*later).value_or(EpochSchedule{});
    }
    all = epochs[0].uses;
    for (const UseInterval& use : epochs[1].uses) {
      all.push_back({use.shard, use.begin + epochs[0].num_slots, use.end + epochs[0].num_slots});
    }
    known = std::make_shared<detail::ShardFuture>(
        names, NextUseIndex(data.index().num_shards(), epochs), post(epochs, slot));
  }
  // Make the calls that may throw first, so that an error leaves the previous epoch unchanged.
  detail::PrefetchSchedule next(std::move(all), options.max_ahead);
  if (known) require_crew();
  follow(known);
  {
    const Lock lock(mutex);
    future = known;
    schedule = std::move(next);
  }
  next_change = 0;
  reached(slot);
  // To make room, unpin shards of the previous epoch that are not needed soon.
  pinned->unpin_if([&](std::uint64_t shard, const CachedShard&) { return !is_wanted(shard); });
  changed.notify_all();
}

void ShardPrefetcher::Impl::reached(std::uint64_t slot) {
  if (current() == nullptr) {
    next_change = detail::PrefetchSchedule::kNever;  // no changes until the next epoch begins
    return;
  }
  require_crew();
  std::vector<std::uint64_t> idle;
  {
    const Lock lock(mutex);
    if (!future) return;
    future->reach(slot);
    for (const std::uint64_t shard : schedule.reach(slot)) {
      if (!future->uses().in_use_until(shard, slot)) idle.push_back(shard);
    }
    next_change = schedule.next_change();
  }
  pinned->unpin_if([&](std::uint64_t shard, const CachedShard&) {
    return std::find(idle.begin(), idle.end(), shard) != idle.end();
  });
  // Closing unmaps the shards, because other processes cannot evict mapped shards. The mutex is not
  // held, because unmapping takes long. If samples of a shard are still in use, e.g. in a batch
  // that spans shards, destroying the last of them closes the shard. If that happens during this
  // attempt, the shard may stay open, so the attempt is repeated later.
  for (const std::uint64_t shard : idle) to_close[shard] = kMaxTriesToClose;
  for (auto at = to_close.begin(); at != to_close.end();) {
    const bool is_done = is_needed(at->first, slot) ||
                         DatasetAccess::close_shard(data, at->first) || --at->second == 0;
    at = is_done ? to_close.erase(at) : std::next(at);
  }
  const auto known = current();
  CacheAccess::trim_overrun(*data.cache(), [&](const std::string& name) {
    return known ? known->next_use(name, slot) : NextUse{};
  });
  changed.notify_all();
}

void ShardPrefetcher::Impl::note_read(std::uint64_t slot) noexcept {
  const Lock lock(mutex);
  if (!future) return;
  // Posting writes to a file, so inform the other users only when a use ends.
  future->reach(slot, schedule.has_end(future->now(), slot));
}

bool ShardPrefetcher::Impl::is_needed(std::uint64_t shard, std::uint64_t slot) {
  const Lock lock(mutex);
  return future && future->uses().in_use_until(shard, slot);
}

void ShardPrefetcher::Impl::run(Crew& of) {
  for (;;) {
    {
      const Lock lock(mutex);
      while (!stopping && schedule.next() == nullptr) changed.wait(mutex);
      if (stopping) return;
    }
    if (fetch_next(of)) continue;
    const Lock lock(mutex);
    if (!stopping) changed.wait_for(mutex, kAskAgain);
  }
}

/// Decides on the next use, and fetches its shard. Returns false if the shard cannot be fetched
/// yet.
bool ShardPrefetcher::Impl::fetch_next(Crew& of) {
  Decision next_one;
  {
    const Lock decision(of.deciding);
    next_one = decide();
  }
  if (!next_one.is_made) return false;
  // There is room for the shard, so the next decision need not wait until this fetch ends.
  try {
    if (!next_one.fetch) return true;
    pinned->pin(next_one.shard, next_one.fetch->run());
    // If the use ended during the fetch, unpin the shard now, because no later call does.
    pinned->unpin_if([&](std::uint64_t shard, const CachedShard&) {
      return shard == next_one.shard && !is_wanted(shard);
    });
  } catch (const std::exception&) {
    // Skip the shard. The reader will get the same error and report it.
  }
  return true;
}

/// True if the shards that this user has pinned take its whole share of the cache.
bool ShardPrefetcher::Impl::has_its_share(const detail::ShardFuture& known) const {
  const std::size_t others = known.user().num_others();
  if (others == 0) return false;
  return pinned->size() * mean_bytes >= data.cache()->options().budget_bytes / (others + 1);
}

/// Decides on the next use in order. Sets `fetch` if its shard must be fetched. If the shard cannot
/// be fetched yet, later uses wait.
ShardPrefetcher::Impl::Decision ShardPrefetcher::Impl::decide() {
  Decision made;
  UseInterval use;
  std::shared_ptr<detail::ShardFuture> known;
  {
    const Lock lock(mutex);
    if (stopping || schedule.next() == nullptr) return made;
    use = *schedule.next();
    known = future;
  }
  made.shard = use.shard;
  try {
    auto request = DatasetAccess::cache_request(data, use.shard);
    if (request && use.end > known->now()) {
      if (has_its_share(*known)) return {.is_made = false};
      request->cancel = &cancel;
      const auto answer = CacheAccess::begin_ahead(
          *data.cache(), *request, use.begin,
          [known, at = use.begin](const std::string& name) { return known->next_use(name, at); },
          made.fetch);
      if (answer == Ahead::kNotNow) return {.is_made = false};
    }
  } catch (const std::exception&) {
    // Skip the shard, as in fetch_next().
  }
  const Lock lock(mutex);
  if (known == future) schedule.decide();
  return made;
}

ShardPrefetcher::ShardPrefetcher(const Dataset& data, const Sampler& sampler)
    : ShardPrefetcher(data, sampler, Options{}) {}

ShardPrefetcher::ShardPrefetcher(const Dataset& data, const Sampler& sampler,
                                 const ShardPrefetcher::Options& options) {
  parts_.push_back(std::make_unique<Impl>(data, sampler, options));
  for (const auto& side : DatasetAccess::joins(data)) {
    parts_.push_back(std::make_unique<Impl>(data, sampler, options, side.get()));
  }
}
ShardPrefetcher::~ShardPrefetcher() = default;

bool ShardPrefetcher::is_active() const noexcept {
  return std::ranges::any_of(parts_, [](const auto& part) { return part->current() != nullptr; });
}

void ShardPrefetcher::reached(std::uint64_t num_delivered) {
  for (const auto& part : parts_) {
    const std::uint64_t slot = num_delivered * part->num_shares + part->share;
    if (slot >= part->next_change.load(std::memory_order_relaxed)) part->reached(slot);
  }
}

void ShardPrefetcher::note_read(std::uint64_t num_read) noexcept {
  for (const auto& part : parts_) part->note_read(num_read * part->num_shares + part->share);
}

void ShardPrefetcher::begin_epoch(const Sampler& sampler) {
  for (const auto& part : parts_) {
    if (part->names && !part->names->empty()) part->begin_epoch(sampler);
  }
}

}  // namespace shardwise
