#include "data/cache_simulation.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/assert.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

[[noreturn]] void throw_bad_use(const UseInterval& use, std::size_t epoch, const std::string& why) {
  throw InvalidArgument("the use of shard " + std::to_string(use.shard) + " in slots " +
                            std::to_string(use.begin) + " to " + std::to_string(use.end) +
                            " is not valid",
                        "epoch " + std::to_string(epoch) + " of the given epochs", why);
}

void check(std::uint64_t num_shards, std::span<const EpochSchedule> epochs) {
  std::vector<std::uint64_t> ends(num_shards);
  for (std::size_t e = 0; e < epochs.size(); ++e) {
    std::fill(ends.begin(), ends.end(), 0);
    const UseInterval* before = nullptr;
    for (const UseInterval& use : epochs[e].uses) {
      if (use.shard >= num_shards) {
        throw_bad_use(use, e, "choose shards in [0, " + std::to_string(num_shards) + ")");
      }
      if (use.begin >= use.end || use.end > epochs[e].num_slots) {
        throw_bad_use(
            use, e,
            "give each use one or more slots, all below " + std::to_string(epochs[e].num_slots));
      }
      if (before != nullptr &&
          std::tie(use.begin, use.shard) <= std::tie(before->begin, before->shard)) {
        throw_bad_use(use, e, "sort the uses by begin, then by shard");
      }
      if (use.begin < ends[use.shard]) {
        throw_bad_use(use, e, "join the uses of one shard that overlap");
      }
      ends[use.shard] = use.end;
      before = &use;
    }
  }
}

/// Returns the smallest budget with which at least `bytes` stay in the cache when it evicts early,
/// down to the low-water mark. The shards have these sizes.
std::uint64_t above_low_water(std::uint64_t bytes, std::span<const std::uint64_t> sizes_bytes) {
  const auto smallest = std::min_element(sizes_bytes.begin(), sizes_bytes.end());
  std::uint64_t budget = bytes + bytes / 255;
  if (smallest == sizes_bytes.end() || *smallest > low_water_bytes(budget)) return bytes;
  while (budget - low_water_bytes(budget) < bytes) ++budget;
  return budget;
}

/// The state of a simulated cache. Slots are numbered across epochs.
class SimulatedCache {
 public:
  SimulatedCache(const NextUseIndex& next_uses, std::span<const std::uint64_t> sizes_bytes,
                 std::uint64_t budget_bytes, Replacement replacement)
      : next_uses_(next_uses),
        sizes_(sizes_bytes),
        budget_(budget_bytes),
        idle_(Leaves{replacement}),
        shards_(sizes_bytes.size()) {}

  void start_epoch() {
    counts_ = {};
    counts_.peak_bytes = cached_bytes_;
  }
  const CacheCounts& counts() const noexcept { return counts_; }

  /// Simulates all uses that begin at one slot. REQUIRES: all uses have the same begin.
  void serve(std::span<const UseInterval> uses, std::uint64_t first_slot) {
    const std::uint64_t now = first_slot + uses.front().begin;
    end_uses(now);
    missing_.clear();
    for (const UseInterval& use : uses) {
      ++counts_.uses;
      if (shards_[use.shard].is_cached) {
        idle_.erase(candidate(use.shard));
        begin_use(use, first_slot);
      } else {
        missing_.push_back(&use);
      }
    }
    for (const UseInterval* use : missing_) fetch(*use, first_slot);
  }

 private:
  struct Shard {
    bool is_cached = false;
    std::uint64_t last_use = 0;
    std::uint64_t in_use_until = 0;
    std::optional<std::uint64_t> next_use;  ///< first use after in_use_until
  };
  struct Leaves {
    Replacement replacement;
    bool operator()(const EvictionCandidate& x, const EvictionCandidate& y) const noexcept {
      return leaves_before(x, y, replacement);
    }
  };

  EvictionCandidate candidate(std::uint64_t number) const noexcept {
    const Shard& shard = shards_[number];
    return {.size_bytes = sizes_[number],
            .last_use = static_cast<std::int64_t>(shard.last_use),
            .next = {.kind = shard.next_use ? NextUse::Kind::kAt : NextUse::Kind::kNever,
                     .position = shard.next_use.value_or(0),
                     .shard = number}};
  }

  void begin_use(const UseInterval& use, std::uint64_t first_slot) {
    Shard& shard = shards_[use.shard];
    bytes_in_use_ += sizes_[use.shard];
    shard.last_use = first_slot + use.begin;
    shard.in_use_until = first_slot + use.end;
    ends_.emplace(shard.in_use_until, use.shard);
  }

  /// Ends all uses whose end is at most `now`.
  void end_uses(std::uint64_t now) {
    while (!ends_.empty() && ends_.top().first <= now) {
      const std::uint64_t number = ends_.top().second;
      ends_.pop();
      Shard& shard = shards_[number];
      bytes_in_use_ -= sizes_[number];
      shard.next_use = next_uses_.next(number, shard.in_use_until);
      idle_.insert(candidate(number));
    }
  }

  void fetch(const UseInterval& use, std::uint64_t first_slot) {
    const std::uint64_t size = sizes_[use.shard];
    ++counts_.fetches;
    counts_.bytes_fetched += size;
    if (size > budget_ || bytes_in_use_ > budget_ - size) {
      ++counts_.bypasses;
      return;
    }
    const Eviction eviction = choose_victims(
        idle_, {.size_bytes = size, .budget_bytes = budget_, .used_bytes = cached_bytes_},
        [](const EvictionCandidate&) { return true; });
    SHARDWISE_ASSERT(eviction.room == Room::kMade);
    // idle_ has no pinned shards, so the victims are its first shards.
    for (std::size_t i = 0; i < eviction.victims.size(); ++i) {
      const std::uint64_t victim = idle_.begin()->next.shard;
      idle_.erase(idle_.begin());
      shards_[victim].is_cached = false;
      cached_bytes_ -= sizes_[victim];
      ++counts_.evictions;
    }
    shards_[use.shard].is_cached = true;
    cached_bytes_ += size;
    counts_.peak_bytes = std::max(counts_.peak_bytes, cached_bytes_);
    begin_use(use, first_slot);
  }

  const NextUseIndex& next_uses_;
  const std::span<const std::uint64_t> sizes_;
  const std::uint64_t budget_;
  std::set<EvictionCandidate, Leaves> idle_;
  std::vector<Shard> shards_;
  using End = std::pair<std::uint64_t, std::uint64_t>;  ///< slot, shard
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::vector<const UseInterval*> missing_;
  std::uint64_t cached_bytes_ = 0;
  std::uint64_t bytes_in_use_ = 0;
  CacheCounts counts_;
};

}  // namespace

NextUseIndex::NextUseIndex(std::uint64_t num_shards, std::span<const EpochSchedule> epochs) {
  check(num_shards, epochs);
  first_.resize(num_shards + 1);
  for (const EpochSchedule& epoch : epochs) {
    for (const UseInterval& use : epoch.uses) ++first_[use.shard + 1];
  }
  for (std::uint64_t shard = 0; shard < num_shards; ++shard) first_[shard + 1] += first_[shard];
  spans_.resize(first_.back());
  std::vector<std::uint64_t> place(first_.begin(), first_.end() - 1);
  std::uint64_t first_slot = 0;
  for (const EpochSchedule& epoch : epochs) {
    for (const UseInterval& use : epoch.uses) {
      spans_[place[use.shard]++] = {first_slot + use.begin, first_slot + use.end};
    }
    first_slot += epoch.num_slots;
  }
}

/// Returns the first span of `shard` that ends after `from`; null if there is no such span.
const NextUseIndex::Span* NextUseIndex::find(std::uint64_t shard,
                                             std::uint64_t from) const noexcept {
  SHARDWISE_ASSERT_HOT(shard < num_shards());
  const Span* const end = spans_.data() + first_[shard + 1];
  const Span* const found =
      std::upper_bound(spans_.data() + first_[shard], end, from,
                       [](std::uint64_t slot, const Span& span) { return slot < span.end; });
  return found == end ? nullptr : found;
}

std::optional<std::uint64_t> NextUseIndex::next(std::uint64_t shard,
                                                std::uint64_t from) const noexcept {
  const Span* const span = find(shard, from);
  if (span == nullptr) return std::nullopt;
  return std::max(span->begin, from);
}

std::optional<std::uint64_t> NextUseIndex::in_use_until(std::uint64_t shard,
                                                        std::uint64_t slot) const noexcept {
  const Span* const span = find(shard, slot);
  if (span == nullptr || span->begin > slot) return std::nullopt;
  return span->end;
}

FetchPlan::CacheCounts& FetchPlan::CacheCounts::operator+=(const CacheCounts& other) noexcept {
  uses += other.uses;
  fetches += other.fetches;
  bytes_fetched += other.bytes_fetched;
  evictions += other.evictions;
  bypasses += other.bypasses;
  peak_bytes = std::max(peak_bytes, other.peak_bytes);
  return *this;
}

std::vector<CacheCounts> simulate_cache(std::span<const EpochSchedule> epochs,
                                        std::span<const std::uint64_t> sizes_bytes,
                                        std::uint64_t budget_bytes, Replacement replacement) {
  const NextUseIndex next_uses(sizes_bytes.size(), epochs);
  SimulatedCache cache(next_uses, sizes_bytes, budget_bytes, replacement);
  std::vector<CacheCounts> counts;
  std::uint64_t first_slot = 0;
  for (const EpochSchedule& epoch : epochs) {
    cache.start_epoch();
    const std::span<const UseInterval> uses = epoch.uses;
    for (std::size_t begin = 0; begin < uses.size();) {
      std::size_t end = begin + 1;
      while (end < uses.size() && uses[end].begin == uses[begin].begin) ++end;
      cache.serve(uses.subspan(begin, end - begin), first_slot);
      begin = end;
    }
    counts.push_back(cache.counts());
    first_slot += epoch.num_slots;
  }
  return counts;
}

std::uint64_t smallest_budget_without_refetch(std::span<const EpochSchedule> epochs,
                                              std::span<const std::uint64_t> sizes_bytes) {
  check(sizes_bytes.size(), epochs);
  // Pairs (slot, bytes). `begins` has the first use of each shard, sorted by slot. `ends` has the
  // end of each shard's last use, nearly sorted.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> begins;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ends;
  std::vector<std::uint32_t> uses_left(sizes_bytes.size());
  for (const EpochSchedule& epoch : epochs) {
    for (const UseInterval& use : epoch.uses) ++uses_left[use.shard];
  }
  std::vector<bool> is_seen(sizes_bytes.size());
  std::uint64_t first_slot = 0;
  for (const EpochSchedule& epoch : epochs) {
    for (const UseInterval& use : epoch.uses) {
      const std::uint64_t size = sizes_bytes[use.shard];
      if (!is_seen[use.shard]) begins.emplace_back(first_slot + use.begin, size);
      is_seen[use.shard] = true;
      if (--uses_left[use.shard] == 0) ends.emplace_back(first_slot + use.end, size);
    }
    first_slot += epoch.num_slots;
  }
  const auto by_slot = [](const auto& x, const auto& y) { return x.first < y.first; };
  if (!std::is_sorted(ends.begin(), ends.end(), by_slot)) {
    std::sort(ends.begin(), ends.end(), by_slot);
  }
  // Uses are half-open: a use that ends at the slot where another begins has ended.
  std::uint64_t bytes = 0;
  std::uint64_t peak = 0;
  std::size_t ended = 0;
  for (const auto& [slot, size] : begins) {
    for (; ends[ended].first <= slot; ++ended) bytes -= ends[ended].second;
    bytes += size;
    peak = std::max(peak, bytes);
  }
  return above_low_water(peak, sizes_bytes);
}

std::uint64_t peak_bytes_in_use(const EpochSchedule& epoch,
                                std::span<const std::uint64_t> sizes_bytes) {
  // Uses are half-open: a use ends before other uses begin in the same slot.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ends;  // slots, with bytes
  ends.reserve(epoch.uses.size());
  for (const UseInterval& use : epoch.uses) ends.emplace_back(use.end, sizes_bytes[use.shard]);
  std::sort(ends.begin(), ends.end());
  std::uint64_t now = 0;
  std::uint64_t peak = 0;
  std::size_t ended = 0;
  for (const UseInterval& use : epoch.uses) {
    while (ends[ended].first <= use.begin) now -= ends[ended++].second;
    now += sizes_bytes[use.shard];
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace shardwise
