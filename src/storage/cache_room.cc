#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/cache_futures.h"
#include "storage/cache_request.h"
#include "storage/cache_state.h"
#include "storage/eviction.h"

namespace shardwise {

using detail::ByteLock;
using detail::ByteLocks;
using detail::CacheDirectory;
using detail::kRoomByte;
using detail::use_byte;

// How room is made:
//
//   used    = all shards under their names + all temporary files that are locked (survey())
//   allowed = budget_bytes - what is wanted
//
//   1  with the room byte: if the ledger is sure that it fits, the temporary file is made
//   2  else, without it: list the files, ask when each is needed, choose victims (eviction.h), and
//      lock those (ByteLocks); a victim must give its use byte exclusively, which fails as long as
//      any process holds the shard, this one included; so this process's own pools are asked first
//      to unmap it (ask_to_release())
//   3  with the room byte: if nobody changed anything since the listing, the victims are removed,
//      and the temporary file is made; else from 2 again
//
// So under the room byte, which all processes of the machine may want, nothing is listed, synced,
// or asked of others. A temporary file gets its full size before the byte is free again; where the
// source does not say how large the shard is, grow() makes room for each further step. So two
// processes never count the same free bytes.
//
// A request that fails evicts nothing, but for what is there beyond the budget. What the caller
// does with the answers:
//
//   kMade    the temporary file was made
//   kNotNow  a victim is needed before the new shard is, or held  come back later
//   kNone    whatever may go is gone, or nothing ever will fit    fetch outside the budget, or read
//                                                                 single samples from the source

namespace {

/// Others may come and go between listing and removing. After these many listings in vain, what is
/// chosen goes all the same; the count is then as exact as the ledger's.
constexpr int kMaxListings = 5;

std::int64_t realtime_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

/// True if a file of this size is refused for the disk's sake, and not by a limit of this process.
bool is_full_disk(const Error& error, std::uint64_t size_bytes) {
  rlimit limit{};
  const bool has_limit = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size_bytes;
  return error.code() == ErrorCode::kNoSpace && !has_limit;
}

}  // namespace

void ShardCache::Impl::require_within_budget(const CacheRequest& request,
                                             std::uint64_t size_bytes) const {
  if (size_bytes <= options.budget_bytes || options.bypass_large) return;
  throw Error(ErrorCode::kNoSpace, "the shard is larger than the shard cache's budget",
              in_quotes(redacted_url(request.source.url)) + " (" + human_bytes(size_bytes) +
                  ", budget " + human_bytes(options.budget_bytes) + ")",
              "give the cache " + std::to_string(size_bytes) +
                  " bytes at least, or let large shards bypass it (--cache-bypass-large)");
}

std::vector<std::pair<std::shared_ptr<void>, CacheAccess::Releaser>>
ShardCache::Impl::living_releasers() {
  std::vector<std::pair<std::shared_ptr<void>, CacheAccess::Releaser>> living;
  const Lock lock(mutex);
  std::erase_if(releasers, [](const Releaser& r) { return r.owner.expired(); });
  for (const Releaser& r : releasers) {
    if (auto owner = r.owner.lock()) living.emplace_back(std::move(owner), r.ask);
  }
  return living;
}

bool ShardCache::Impl::ask_to_release(const std::string& name) {
  // Without the mutex, since a releaser takes locks of its own.
  bool released = false;
  for (const auto& [owner, ask] : living_releasers()) released |= ask.release(name);
  return released;
}

std::unique_ptr<ShardCache::Impl::OverflowSlot> ShardCache::Impl::take_overflow_slot(bool must) {
  const Lock lock(mutex);
  if (!must && num_overflow.get() > 0) return nullptr;
  ++num_overflow.get();
  return std::make_unique<OverflowSlot>(shared_from_this());
}

bool ShardCache::Impl::is_used_here(const std::string& name) {
  for (const auto& [owner, ask] : living_releasers()) {
    if (ask.holds && ask.holds(name)) return true;
  }
  return false;
}

bool ShardCache::Impl::try_to_remove(const std::string& name, ByteLocks& locks) {
  const std::uint64_t byte = use_byte(name);
  return locks.try_take(byte) || (ask_to_release(name) && locks.try_take(byte));
}

bool ShardCache::Impl::clear(const ByteLock&, const CacheRequest& request, const std::string& name,
                             std::chrono::milliseconds patience) {
  detail::Pause pause;
  for (const auto start = std::chrono::steady_clock::now();;) {
    const auto size = detail::find_size(directory.shard_path(name));
    if (!size) return true;
    if (ByteLocks locks(directory); try_to_remove(name, locks)) {
      const RoomLock room = lock_room(request);
      ledger.change(
          [&] { return -remove(room, {.name = name, .size_bytes = *size}, Counted::kReplaced); });
      return true;
    }
    if (std::chrono::steady_clock::now() - start >= patience) return false;
    request.cancel.throw_if_cancelled();
    pause();  // a process that only examines the shard, as find() does, lets go of it soon
  }
}

bool ShardCache::Impl::has_room(const std::string& name) {
  const auto before = ledger.read();
  {
    // No file is made without a change of the ledger.
    const Lock lock(mutex);
    const auto at = without_room.find(name);
    if (at != without_room.end() && before.doubt != 0 && at->second == before) return false;
  }
  const auto contents = directory.scan(CacheDirectory::Listed::kBytes);
  const auto is_it = [&](const auto& file) { return file.name == name; };
  const bool is_there =
      std::any_of(contents.temporaries.begin(), contents.temporaries.end(), is_it) ||
      std::any_of(contents.shards.begin(), contents.shards.end(), is_it);
  const Lock lock(mutex);
  if (is_there) {
    without_room.erase(name);
  } else {
    without_room.insert_or_assign(name, before);
  }
  return is_there;
}

std::int64_t ShardCache::Impl::remove(const RoomLock&, const CacheDirectory::Shard& shard,
                                      Counted what) {
  // Since it was listed, it may have gone, or another have come under its name.
  const auto size_bytes = detail::find_size(directory.shard_path(shard.name));
  directory.remove(shard.name);
  if (size_bytes && what == Counted::kEvicted) {
    count([&](ShardCache::Stats& s) {
      ++s.evicted;
      s.evicted_bytes += *size_bytes;
    });
  }
  return static_cast<std::int64_t>(size_bytes.value_or(0));
}

void ShardCache::Impl::spare_unknown(Survey& found) const {
  const auto users = board.others("");
  std::uint64_t num_unknown = 0;
  std::int64_t began_ns = std::numeric_limits<std::int64_t>::max();
  for (const detail::OtherUser& user : users) {
    if (!user.future->uses().empty()) continue;
    ++num_unknown;
    began_ns = std::min(began_ns, user.pace.began_ns);
  }
  // Among themselves the least recently used leaves first.
  if (num_unknown == 0 || num_unknown == users.size()) return;
  const std::uint64_t share = options.budget_bytes / users.size() * num_unknown;
  std::vector<detail::EvictionCandidate*> candidates;
  for (Candidate& candidate : found.shards) candidates.push_back(&candidate);
  // Users tell the monotonic clock's time, files the real one's.
  const std::int64_t since = realtime_ns() - (detail::monotonic_ns() - began_ns);
  detail::spare_share(candidates, share, since);
}

ShardCache::Impl::Survey ShardCache::Impl::survey(const std::string& name,
                                                  const NextUseOf& next_use) const {
  Survey found;
  found.before = ledger.read_before_listing();
  CacheDirectory::Contents contents = directory.scan(CacheDirectory::Listed::kBytes);
  for (const auto& temporary : contents.temporaries) {
    if (!sweep_temporary(temporary.path)) found.used_bytes += temporary.size_bytes;
  }
  found.shards.reserve(contents.shards.size());
  for (CacheDirectory::Shard& shard : contents.shards) {
    found.used_bytes += shard.size_bytes;
    if (shard.name == name) continue;
    found.bytes += shard.size_bytes;
    const detail::EvictionCandidate candidate{.size_bytes = shard.size_bytes,
                                              .last_use = shard.last_use_ns,
                                              .next = next_use ? next_use(shard.name) : NextUse{}};
    found.shards.emplace_back(candidate, std::move(shard));
  }
  spare_unknown(found);
  std::sort(found.shards.begin(), found.shards.end(), [](const Candidate& a, const Candidate& b) {
    return leaves_before(a, b, Replacement::kNextUse);
  });
  return found;
}

void ShardCache::Impl::mark_stuck(Survey& found) {
  const auto now = std::chrono::steady_clock::now();
  const Lock lock(mutex);
  if (stuck_since.empty()) return;
  auto before = std::exchange(stuck_since, {});
  for (Candidate& candidate : found.shards) {
    const auto at = before.find(candidate.shard.name);
    // Who is about to read it may hold it: then it counts anew.
    if (at == before.end() || !candidate.next.may_go_now) continue;
    candidate.is_stuck = now - at->second >= options.room_timeout;
    stuck_since.insert(before.extract(at));
  }
}

bool ShardCache::Impl::try_victim(const Candidate& candidate, ByteLocks& locks) {
  const std::string& name = candidate.shard.name;
  const bool is_free = try_to_remove(name, locks);
  const auto now = std::chrono::steady_clock::now();
  const Lock lock(mutex);
  if (is_free) {
    stuck_since.erase(name);
  } else if (candidate.next.is_known() && candidate.next.may_go_now) {
    stuck_since.emplace(name, now);
  }
  return is_free;
}

std::optional<std::uint64_t> ShardCache::Impl::counted(const RoomLock&, const Survey& found) const {
  return ledger.is_same(found.before) ? std::optional(found.used_bytes) : std::nullopt;
}

void ShardCache::Impl::remove(const RoomLock& room, Survey& found,
                              const std::vector<std::size_t>& victims) {
  ledger.change(
      [&] {
        std::int64_t removed = 0;
        for (const std::size_t victim : victims) {
          removed += remove(room, found.shards[victim].shard, Counted::kEvicted);
        }
        return -removed;
      },
      counted(room, found));
}

std::vector<std::size_t> ShardCache::Impl::lock_surplus(const Survey& found,
                                                        std::uint64_t max_bytes, ByteLocks& locks,
                                                        Spare spare) {
  std::vector<std::size_t> victims;
  std::uint64_t left = found.bytes;
  for (std::size_t i = 0; i < found.shards.size() && left > max_bytes; ++i) {
    const Candidate& candidate = found.shards[i];
    const bool is_spared =
        spare == Spare::kNeeded && candidate.next.is_known() && !candidate.next.may_go_now;
    if (!is_spared && try_to_remove(candidate.shard.name, locks)) {
      victims.push_back(i);
    } else if (spare == Spare::kNothing || candidate.is_stuck) {
      continue;
    }
    left -= candidate.size_bytes;
  }
  return victims;
}

bool ShardCache::Impl::come_down(const std::string& held, const NextUseOf& next_use, Spare spare) {
  try {
    Survey found = survey(held, next_use);
    const std::uint64_t own_bytes =
        held.empty() ? 0 : detail::find_size(directory.shard_path(held)).value_or(0);
    const std::uint64_t max = options.budget_bytes - std::min(options.budget_bytes, own_bytes);
    if (found.bytes <= max) return true;
    ByteLocks locks(directory);
    const auto victims = lock_surplus(found, max, locks, spare);
    std::uint64_t left = found.bytes;
    for (const std::size_t victim : victims) left -= found.shards[victim].size_bytes;
    if (!victims.empty()) {
      auto taken = ByteLock::try_take(directory, kRoomByte);
      if (!taken) return false;
      remove(RoomLock{*std::move(taken)}, found, victims);
    }
    return spare == Spare::kNothing || left <= max;
  } catch (const Error&) {  // the shards can be read all the same, and the next call tries again
    return false;
  }
}

void ShardCache::Impl::come_down_once(const std::string& held, const NextUseOf& next_use) {
  if (!has_come_down && come_down(held, next_use, Spare::kNothing)) has_come_down = true;
}

void ShardCache::Impl::settle(const NextUseOf& next_use) {
  if (has_overrun.exchange(false) && !come_down("", next_use, Spare::kNeeded)) has_overrun = true;
}

Room ShardCache::Impl::make_room(const Wanted& wanted, const MakeFile& make) {
  std::uint64_t budget_bytes = options.budget_bytes;
  for (bool is_first = true;; is_first = false) {
    try {
      return make_room_within(budget_bytes, wanted, make);
    } catch (const Error& full) {
      if (!is_full_disk(full, wanted.size_bytes)) throw;
      // The disk holds less than the budget: what is there now is all that it holds.
      const std::uint64_t used = survey(wanted.name, nullptr).used_bytes;
      const bool is_vain = used < wanted.size_bytes || (!is_first && used >= budget_bytes);
      if (is_vain) throw;
      budget_bytes = used;
    }
  }
}

void ShardCache::Impl::with_disk_space(const Wanted& wanted, const std::function<void()>& take) {
  for (;;) {
    try {
      return take();
    } catch (const Error& full) {
      if (!is_full_disk(full, wanted.size_bytes)) throw;
      Survey found = survey(wanted.name, wanted.next_use);
      ByteLocks locks(directory);
      const std::uint64_t left = found.bytes - std::min(found.bytes, wanted.size_bytes);
      const auto victims = lock_surplus(found, left, locks, Spare::kNothing);
      if (victims.empty()) throw;
      remove(lock_room(wanted.request), found, victims);
    }
  }
}

Room ShardCache::Impl::make_room_within(std::uint64_t budget_bytes, const Wanted& wanted,
                                        const MakeFile& make) {
  const auto made = [&](const RoomLock&, bool is_overflow, std::optional<std::uint64_t> used) {
    ledger.change(
        [&] {
          make(is_overflow);
          return static_cast<std::int64_t>(wanted.size_bytes);
        },
        used);
  };
  {
    const RoomLock room = lock_room(wanted.request);
    const auto used = ledger.read().used_bytes;
    if (used && *used <= budget_bytes && wanted.size_bytes <= budget_bytes - *used) {
      made(room, false, {});
      return Room::kMade;
    }
  }
  const bool is_disk_full = budget_bytes != options.budget_bytes;
  const bool may_overrun = !is_disk_full && (wanted.urgency == Urgency::kOverrun ||
                                             wanted.urgency == Urgency::kOverflow);
  for (int listing = 1;; ++listing) {
    Survey found = survey(wanted.name, wanted.next_use);
    mark_stuck(found);
    // Shards that were kept under a larger budget, or while they were in use, go first, though they
    // are needed: otherwise no fetch would find room while they stay. Those that are held count as
    // gone: what is needed next shall not go in their place.
    if (found.bytes > options.budget_bytes) {
      ByteLocks locks(directory);
      const auto victims = lock_surplus(found, options.budget_bytes, locks,
                                        may_overrun ? Spare::kNeeded : Spare::kHeld);
      remove(lock_room(wanted.request), found, victims);
      found = survey(wanted.name, wanted.next_use);
      mark_stuck(found);
    }
    ByteLocks locks(directory);  // until the victims are gone
    const Eviction eviction = choose_victims(
        found.shards,
        {.size_bytes = wanted.size_bytes,
         .budget_bytes = budget_bytes,
         .used_bytes = found.used_bytes,
         .urgency = wanted.urgency,
         .needed_at = wanted.needed_at,
         .is_disk_full = is_disk_full},
        [&](const Candidate& candidate) { return try_victim(candidate, locks); },
        [&](const Candidate& candidate) { return is_used_here(candidate.shard.name); });
    if (eviction.has_overrun) has_overrun = true;
    if (eviction.room == Room::kNotNow) return Room::kNotNow;
    if (eviction.room == Room::kNone && !wanted.may_overflow) return Room::kNone;
    if (eviction.room == Room::kNone && is_disk_full) {
      throw Error(
          ErrorCode::kNoSpace, "the disk of the shard cache is full, and no shard may go",
          in_quotes(directory.path()) + " (" + human_bytes(wanted.size_bytes) + " are needed)",
          "free space, or give the cache another disk");
    }
    const RoomLock room = lock_room(wanted.request);
    if (ledger.read() != found.before && listing < kMaxListings) continue;
    if (!eviction.victims.empty()) {
      remove(room, found, eviction.victims);
      made(room, false, {});
    } else {
      made(room, eviction.room == Room::kNone, counted(room, found));
    }
    return eviction.room;
  }
}

}  // namespace shardwise
