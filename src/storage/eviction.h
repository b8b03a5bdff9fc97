#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/base/export.h"

// Pure functions that choose which shards to evict from a full cache. Both the cache
// (cache_room.cc) and plan_fetches() (data/cache_simulation.cc) call them, so the cache evicts as
// planned.

namespace shardwise::detail {

/// The rule for choosing a victim. Both rules spare shards in use.
enum class Replacement : std::uint8_t {
  kLru,      ///< evict the shard whose latest use began longest ago
  kNextUse,  ///< evict the shard that is never needed again, or whose next use is farthest away
};

/// When a cached shard is needed next. Positions are slots of an order, counted across epochs.
struct NextUse {
  enum class Kind : std::uint8_t {
    kUnknown,  ///< only the shard's last use is known
    kAt,       ///< needed at the slot `position`
    kNever,
    kInUse,  ///< in use at the time when the new shard is needed, so it must stay
  };
  Kind kind = Kind::kUnknown;
  std::uint64_t position = 0;
  std::uint64_t shard = 0;  ///< the shard's number, which breaks ties
  /// False if the shard is needed before the new shard, so it must not be evicted yet.
  bool may_go_now = true;

  bool is_known() const noexcept { return kind != Kind::kUnknown; }
  bool is_in_use() const noexcept { return kind == Kind::kInUse; }
};

/// A cached shard that is considered for eviction.
struct EvictionCandidate {
  std::uint64_t size_bytes = 0;
  std::int64_t last_use = 0;  ///< start of its latest use; in slots (simulation) or in ns (cache)
  NextUse next = {};
  /// Its next use is unknown, but it is in the fair share that users of unknown order may keep.
  bool is_spared = false;
  /// It could be evicted, but has been pinned for too long. Do not wait for it any longer.
  bool is_stuck = false;
};

/// True if `x` must be evicted before `y`. Eviction order under kNextUse:
///
///   1   shards whose next use is unknown, least recently used first
///   2   shards never needed again, then shards by next use, farthest first
///   3   spared shards, least recently used first
///   4   shards in use
///
/// If two shards are equal by these rules, the larger one is evicted first, then the one with the
/// lower number. The order of shards with known next use is therefore total.
SHARDWISE_EXPORT bool leaves_before(const EvictionCandidate& x, const EvictionCandidate& y,
                                    Replacement replacement) noexcept;

/// Marks as spared the shards that users of unknown order used most recently, up to these users'
/// fair share.
/// @param share_bytes  the fair share of the budget.
/// @param since        time at which the first of these users began; shards last used earlier are
///   not marked.
SHARDWISE_EXPORT void spare_share(const std::vector<EvictionCandidate*>& candidates,
                                  std::uint64_t share_bytes, std::int64_t since);

/// How urgently room is needed. If the preferred victim is pinned, or is needed before the new
/// shard, the urgency decides: the caller waits for it, counts it as evicted, or skips it. The
/// cache exceeds its budget by the pinned shards that count as evicted, until they are unpinned.
///
///              waits for the victim                counts the victim as evicted
///   kAhead     yes, if pinned or needed sooner     never
///   kPolite    yes, unless it counts as evicted    if it is in use, and not needed sooner
///   kOverrun   if it is needed sooner, and not     otherwise
///              in use
///   kOverflow  no                                  yes, if pinned
///   kNow       no                                  as kPolite
///
/// "Needed sooner" means before the new shard. "In use" means that this process pins the shard and
/// will not release it. A pinned shard is skipped if its next use is unknown or it is stuck.
///
/// A caller that needs the shard moves from kPolite to kOverflow; see next_stage().
enum class Urgency : std::uint8_t { kAhead, kPolite, kOverrun, kOverflow, kNow };

constexpr bool waits_for_victim(Urgency urgency) noexcept { return urgency <= Urgency::kOverrun; }

/// Returns the next stage for a caller whose request returned kNotNow.
/// @param waited  time since the caller's first request.
/// @param quiet   time since a fetch of this process last ran, or since the first request. While
///   `quiet` is short, the work that uses the victim is assumed to proceed. If it is long, that
///   work may be waiting for this caller, so the caller must stop waiting.
constexpr Urgency next_stage(std::chrono::nanoseconds waited, std::chrono::nanoseconds quiet,
                             std::chrono::nanoseconds room_timeout) noexcept {
  // A thread unpins its shard as soon as it has finished a sample. This grace period keeps the
  // cache within its budget, unless a shard stays pinned longer.
  constexpr std::chrono::nanoseconds kGrace = std::chrono::milliseconds(5);
  if (quiet >= room_timeout) return Urgency::kOverflow;
  return waited >= std::min(kGrace, room_timeout / 40) ? Urgency::kOverrun : Urgency::kPolite;
}

/// A request for room, as input of choose_victims().
struct EvictionNeed {
  std::uint64_t size_bytes = 0;    ///< size of the new shard
  std::uint64_t budget_bytes = 0;  ///< budget of the cache
  /// Size of all shards in the cache, including those being fetched.
  std::uint64_t used_bytes = 0;
  Urgency urgency = Urgency::kNow;
  std::uint64_t needed_at = 0;  ///< for kAhead: slot at which the new shard is needed
  bool is_disk_full = false;    ///< if true, pinned shards never count as evicted
};

enum class Room : std::uint8_t {
  kMade,
  kNotNow,  ///< the victim is pinned, or needed before the new shard
  kNone     ///< no shard may be evicted, or evicting all evictable shards is not enough
};

/// The result of choose_victims(). `victims` are indexes of its candidates; empty unless `room` is
/// kMade.
struct Eviction {
  Room room = Room::kNone;
  std::vector<std::size_t> victims = {};
  bool has_overrun = false;  ///< some pinned shard counts as evicted
};

/// When a shard is evicted, further shards are evicted until the cache is this many bytes below its
/// budget (the low-water mark). A cache of very many shards is therefore not listed again for each
/// fetch. Eviction stops early at a shard that is larger than the remaining distance to the mark.
constexpr std::uint64_t low_water_bytes(std::uint64_t budget_bytes) noexcept {
  return budget_bytes / 256;
}

struct NonePinned {
  bool operator()(const EvictionCandidate&) const noexcept { return false; }
};

/// True if shards in use may count as evicted.
constexpr bool may_exceed_budget(Urgency urgency) noexcept {
  return urgency == Urgency::kOverrun || urgency == Urgency::kOverflow;
}

/// True if a candidate that cannot be evicted now counts as evicted.
/// @param is_early  the candidate is needed before the new shard.
template <class Candidate, class IsInUse>
bool counts_as_evicted(const Candidate& candidate, const EvictionNeed& need, bool is_early,
                       const IsInUse& is_in_use) {
  const bool is_never = need.urgency == Urgency::kAhead || need.is_disk_full;
  if (is_never || candidate.is_stuck || !candidate.next.is_known()) return false;
  if (may_exceed_budget(need.urgency)) return !is_early || is_in_use(candidate);
  return candidate.next.may_go_now && is_in_use(candidate);
}

/// Chooses the shards to evict for a new shard.
/// @param in_order   the candidates, sorted by leaves_before().
/// @param try_take   takes a candidate, and returns true if the candidate can be evicted. Called in
///   order until there is enough room.
/// @param is_in_use  takes a candidate that cannot be evicted, and returns true if this process
///   uses it and will not release it.
template <class InOrder, class TryTake, class IsInUse = NonePinned>
Eviction choose_victims(const InOrder& in_order, const EvictionNeed& need, const TryTake& try_take,
                        const IsInUse& is_in_use = {}) {
  if (need.size_bytes > need.budget_bytes) return {.room = Room::kNone};
  const std::uint64_t allowed = need.budget_bytes - need.size_bytes;
  if (need.used_bytes <= allowed) return {.room = Room::kMade};
  const std::uint64_t mark = allowed - std::min(allowed, low_water_bytes(need.budget_bytes));
  const bool can_wait = waits_for_victim(need.urgency);
  std::uint64_t used = need.used_bytes;
  Eviction eviction{.room = Room::kMade};
  std::size_t at = 0;
  for (const auto& candidate : in_order) {
    const NextUse& next = candidate.next;
    const bool is_enough = used <= allowed;
    if (next.is_in_use()) break;
    if (is_enough && (used <= mark || candidate.size_bytes > used - mark)) break;
    // Wait for the preferred victim, because skipping it would evict a shard that is needed sooner.
    // A fetch ahead never evicts a shard that is needed before the new one.
    const bool is_early = (next.is_known() && can_wait && !next.may_go_now) ||
                          (need.urgency == Urgency::kAhead && next.kind == NextUse::Kind::kAt &&
                           next.position <= need.needed_at);
    if (!is_early && try_take(candidate)) {
      used -= candidate.size_bytes;
      eviction.victims.push_back(at);
    } else if (is_enough) {
      break;
    } else if (counts_as_evicted(candidate, need, is_early, is_in_use)) {
      used -= candidate.size_bytes;
      eviction.has_overrun = true;
    } else if (is_early || (next.is_known() && can_wait && !candidate.is_stuck)) {
      return {.room = Room::kNotNow};
    }
    ++at;
  }
  if (used <= allowed) return eviction;
  return {.room = need.urgency == Urgency::kAhead ? Room::kNotNow : Room::kNone};
}

}  // namespace shardwise::detail

namespace shardwise {
using detail::choose_victims;
using detail::Eviction;
using detail::EvictionCandidate;
using detail::EvictionNeed;
using detail::leaves_before;
using detail::low_water_bytes;
using detail::may_exceed_budget;
using detail::next_stage;
using detail::NextUse;
using detail::Replacement;
using detail::Room;
using detail::Urgency;
}  // namespace shardwise
