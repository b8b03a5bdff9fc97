#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "shardwise/base/export.h"

// Which shards leave a full cache. Pure: what is there goes in, and what leaves comes out. The
// cache (cache_room.cc) and plan_fetches() (data/cache_simulation.cc) both ask here, so that a run
// does what was planned.

namespace shardwise::detail {

/// The rule by which a shard leaves a full cache. Under both, no shard leaves that is in use.
enum class Replacement : std::uint8_t {
  kLru,      ///< the one whose latest use began longest ago
  kNextUse,  ///< the one that is needed again last, or never
};

/// When a shard of the cache is needed next, in slots of an order, counted over its epochs.
struct NextUse {
  enum class Kind : std::uint8_t {
    kUnknown,  ///< the cache knows only when it was used last
    kAt,       ///< at the slot `position`
    kNever,
    kInUse,  ///< when the new shard is needed: it must stay
  };
  Kind kind = Kind::kUnknown;
  std::uint64_t position = 0;
  std::uint64_t shard = 0;  ///< its number, which decides between equals
  /// False: it is needed before the new shard is, so it may not go yet.
  bool may_go_now = true;

  bool is_known() const noexcept { return kind != Kind::kUnknown; }
  bool is_in_use() const noexcept { return kind == Kind::kInUse; }
};

/// A cached shard that may have to leave.
struct EvictionCandidate {
  std::uint64_t size_bytes = 0;
  std::int64_t last_use = 0;  ///< slots or ns: when its latest use began
  NextUse next = {};
  /// Its next use is not known, but it is of the fair share of users that read in an order which
  /// nobody knows.
  bool is_spared = false;
  /// It could have gone for long, but somebody holds it: whoever wants room waits for it no more.
  bool is_stuck = false;
};

/// True if `x` leaves before `y`. Under kNextUse: first those whose next use is not known, the
/// least recently used first; then those whose next use is farthest away; then those that are
/// spared, the least recently used first; at last those that are in use. For a pair of different
/// known shards either this or the reverse is true: if their uses do not decide, the larger one
/// leaves first, then the one of lower number.
SHARDWISE_EXPORT bool leaves_before(const EvictionCandidate& x, const EvictionCandidate& y,
                                    Replacement replacement) noexcept;

/// Marks as spared what users of unknown order used last, up to their fair share.
/// @param share_bytes  of the budget.
/// @param since        what was last used before counts as nobody's.
SHARDWISE_EXPORT void spare_share(const std::vector<EvictionCandidate*>& candidates,
                                  std::uint64_t share_bytes, std::int64_t since);

/// How urgently room is needed. It decides about the preferred victim if that is pinned, or needed
/// before the new shard: wait until it may go, count it as evicted, or pass over it. The cache
/// exceeds its budget by what counts as evicted, until that is unpinned.
///
///              waits for it                          counts it as evicted
///   kAhead     yes, and for all needed sooner        never
///   kPolite    yes                                   if only kept samples pin it
///   kOverrun   yes, if needed sooner, and not in use if it is in use, as by a batch
///   kOverflow  no                                    if it is in use
///   kNow       no                                    as kPolite
///
/// A caller that needs the shard goes from kPolite to kOverflow: next_stage().
enum class Urgency : std::uint8_t { kAhead, kPolite, kOverrun, kOverflow, kNow };

constexpr bool waits_for_victim(Urgency urgency) noexcept { return urgency <= Urgency::kOverrun; }

/// The next stage of a caller that was told to come back later.
/// @param waited  since it first asked.
/// @param quiet   since a fetch of this process last ran, or since it first asked. Until then the
///                work that needs the victim proceeds. Afterwards that work may wait for this very
///                caller, so it must not wait any longer.
constexpr Urgency next_stage(std::chrono::nanoseconds waited, std::chrono::nanoseconds quiet,
                             std::chrono::nanoseconds room_timeout) noexcept {
  // A thread that is done with a sample unpins its shard at once. So the cache exceeds its budget
  // only for a shard that stays pinned for longer than this.
  constexpr std::chrono::nanoseconds kGrace = std::chrono::milliseconds(5);
  if (quiet >= room_timeout) return Urgency::kOverflow;
  return waited >= std::min(kGrace, room_timeout / 40) ? Urgency::kOverrun : Urgency::kPolite;
}

/// What room is needed for.
struct EvictionNeed {
  std::uint64_t size_bytes = 0;    ///< of the new shard
  std::uint64_t budget_bytes = 0;  ///< of the cache
  std::uint64_t used_bytes = 0;    ///< of all shards in it, those being fetched included
  Urgency urgency = Urgency::kNow;
  std::uint64_t needed_at = 0;  ///< kAhead: the position at which the new shard is needed
  bool is_disk_full = false;    ///< then no pinned shard counts as evicted
};

enum class Room : std::uint8_t {
  kMade,
  kNotNow,  ///< the victim is needed before the new shard is, or somebody holds it
  kNone     ///< no shard may go, or all that may are not enough
};

/// Where there is room if its victims leave: candidates, by their place in the order. None, unless
/// `room` is kMade.
struct Eviction {
  Room room = Room::kNone;
  std::vector<std::size_t> victims = {};
  bool has_overrun = false;  ///< a pinned shard counts as evicted
};

/// Once anything leaves, more leaves as long as the cache stays above its budget less these bytes,
/// its low-water mark: so a cache of very many shards is not listed again for each fetch. Of shards
/// that are larger than this, none leaves beforehand.
constexpr std::uint64_t low_water_bytes(std::uint64_t budget_bytes) noexcept {
  return budget_bytes / 256;
}

struct NonePinned {
  bool operator()(const EvictionCandidate&) const noexcept { return false; }
};

/// True if shards in use count as evicted.
constexpr bool may_exceed_budget(Urgency urgency) noexcept {
  return urgency == Urgency::kOverrun || urgency == Urgency::kOverflow;
}

/// True if a candidate that cannot be evicted now counts as evicted.
/// @param is_early  it is needed before the new shard.
template <class Candidate, class IsInUse>
bool counts_as_evicted(const Candidate& candidate, const EvictionNeed& need, bool is_early,
                       const IsInUse& is_in_use) {
  const bool is_never = need.urgency == Urgency::kAhead || need.is_disk_full;
  if (is_never || candidate.is_stuck || !candidate.next.is_known()) return false;
  if (may_exceed_budget(need.urgency)) return !is_early || is_in_use(candidate);
  return candidate.next.may_go_now && is_in_use(candidate);
}

/// Chooses victims.
/// @param in_order  the candidates, in the order of leaves_before().
/// @param try_take  is given a candidate, and says whether nobody holds it. Called in order, as far
///                  as it takes.
/// @param is_in_use  is given one that cannot be had, and says whether it is in use here now, which
///                   it does not end.
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
    // Passing over the preferred victim would evict one that is needed sooner: wait instead. And a
    // shard that is needed before the one that is fetched ahead must not go for it.
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
