#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "shardwise/base/export.h"

// Chooses which shards to evict from a full cache. Pure functions. Both the cache (cache_room.cc)
// and plan_fetches() (data/cache_simulation.cc) call them, so that a run does what was planned.

namespace shardwise::detail {

/// The rule for choosing a victim. Neither rule evicts a shard in use.
enum class Replacement : std::uint8_t {
  kLru,      ///< the shard whose latest use began longest ago
  kNextUse,  ///< the shard that is needed again last, or never
};

/// When a shard of the cache is needed next, in slots of an order, counted across epochs.
struct NextUse {
  enum class Kind : std::uint8_t {
    kUnknown,  ///< the cache knows only its last use
    kAt,       ///< at the slot `position`
    kNever,
    kInUse,  ///< when the new shard is needed, so it must stay
  };
  Kind kind = Kind::kUnknown;
  std::uint64_t position = 0;
  std::uint64_t shard = 0;  ///< its number, which breaks ties
  /// False if it is needed before the new shard, so it may not be evicted yet.
  bool may_go_now = true;

  bool is_known() const noexcept { return kind != Kind::kUnknown; }
  bool is_in_use() const noexcept { return kind == Kind::kInUse; }
};

/// A cached shard that may be evicted.
struct EvictionCandidate {
  std::uint64_t size_bytes = 0;
  std::int64_t last_use = 0;  ///< slots or ns: start of its latest use
  NextUse next = {};
  /// Its next use is unknown, but it belongs to the fair share of users of unknown order.
  bool is_spared = false;
  /// It has been pinned for too long since it may be evicted; do not wait for it any more.
  bool is_stuck = false;
};

/// True if `x` is evicted before `y`. Order under kNextUse:
///
///   1. next use unknown, least recently used first
///   2. never needed again, then those needed last
///   3. spared, least recently used first
///   4. in use
///
/// Ties go to the larger shard, then to the lower number, so the order of different known shards is
/// total.
SHARDWISE_EXPORT bool leaves_before(const EvictionCandidate& x, const EvictionCandidate& y,
                                    Replacement replacement) noexcept;

/// Marks the shards that users of unknown order used last as spared, up to their fair share.
/// @param share_bytes  their share of the budget.
/// @param since        shards last used before this are not theirs.
SHARDWISE_EXPORT void spare_share(const std::vector<EvictionCandidate*>& candidates,
                                  std::uint64_t share_bytes, std::int64_t since);

/// How urgently room is needed. It decides what happens if the preferred victim is pinned, or is
/// needed before the new shard: wait for it, count it as evicted, or skip it. The cache exceeds its
/// budget by what counts as evicted, until that is unpinned.
///
///              waits for it                          counts it as evicted
///   kAhead     yes, and for all needed sooner        never
///   kPolite    yes                                   if only kept samples pin it
///   kOverrun   yes, if needed sooner, and not in use if it is in use, as by a batch
///   kOverflow  no                                    if it is in use
///   kNow       no                                    as kPolite
///
/// A caller that needs the shard proceeds from kPolite to kOverflow: next_stage().
enum class Urgency : std::uint8_t { kAhead, kPolite, kOverrun, kOverflow, kNow };

constexpr bool waits_for_victim(Urgency urgency) noexcept { return urgency <= Urgency::kOverrun; }

/// The next stage of a caller whose request returned kNotNow.
/// @param waited  time since it first asked.
/// @param quiet   time since a fetch of this process last ran, or since it first asked. Until
///   `quiet` is long, the work that needs the victim proceeds. Afterwards that work may be waiting
///   for this very caller, which must therefore stop waiting.
constexpr Urgency next_stage(std::chrono::nanoseconds waited, std::chrono::nanoseconds quiet,
                             std::chrono::nanoseconds room_timeout) noexcept {
  // A thread that is done with a sample unpins its shard at once. The grace keeps the cache within
  // its budget unless a shard stays pinned for longer.
  constexpr std::chrono::nanoseconds kGrace = std::chrono::milliseconds(5);
  if (quiet >= room_timeout) return Urgency::kOverflow;
  return waited >= std::min(kGrace, room_timeout / 40) ? Urgency::kOverrun : Urgency::kPolite;
}

/// The request for room.
struct EvictionNeed {
  std::uint64_t size_bytes = 0;    ///< of the new shard
  std::uint64_t budget_bytes = 0;  ///< of the cache
  std::uint64_t used_bytes = 0;    ///< of all its shards, including those being fetched
  Urgency urgency = Urgency::kNow;
  std::uint64_t needed_at = 0;  ///< kAhead: slot at which the new shard is needed
  bool is_disk_full = false;    ///< if so, no pinned shard counts as evicted
};

enum class Room : std::uint8_t {
  kMade,
  kNotNow,  ///< the victim is pinned, or needed before the new shard
  kNone     ///< no shard may be evicted, or all that may are not enough
};

/// The result of choose_victims(). `victims` are indexes into its candidates; empty unless `room`
/// is kMade.
struct Eviction {
  Room room = Room::kNone;
  std::vector<std::size_t> victims = {};
  bool has_overrun = false;  ///< a pinned shard counts as evicted
};

/// Once a shard is evicted, more are evicted until the cache is this far below its budget (the
/// low-water mark). A cache of very many shards is therefore not listed again for each fetch. Early
/// eviction stops at a shard larger than the bytes that are left to the mark.
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
/// @param try_take   takes a candidate, and returns true if it is free to be evicted. Called in
///   order until there is room.
/// @param is_in_use  takes a candidate that is not free, and returns true if this process is using
///   it and will not release it.
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
    // Skipping the preferred victim would evict a shard that is needed sooner: wait instead. For a
    // fetch ahead, a shard needed before the new one must stay.
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
