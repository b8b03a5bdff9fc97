#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"
#include "storage/cache_request.h"
#include "storage/cache_state.h"
#include "storage/replacement.h"

namespace shardwise {

using detail::ByteLock;
using detail::ByteLocks;
using detail::CacheDirectory;
using detail::kRoomByte;
using detail::use_byte;

// How room is made. One process at a time, under the room byte (shard_cache.cc says which locks
// there are), counts what is there and removes shards until the new one fits:
//
//   used    = all shards under their names + all temporary files that are locked (survey())
//   allowed = budget_bytes - what is wanted
//
// A temporary file gets its full size before the room byte is free again; where the source does not
// say how large the shard is, grow() makes room for each further step. So two processes never count
// the same free bytes.
//
// Candidates leave in the order of survey():
//
//   next use unknown, least recently used first | next use known, farthest first | needed at once
//   ------------------------------------------->|------------------------------>| never
//
// make_room() first locks its victims (ByteLocks) and removes them only when they suffice: a
// request that fails evicts nothing. Its answers, and what the caller does:
//
//   kMade    the bytes are free                                   make the temporary file
//   kNotNow  a victim is needed before the new shard is, or held  come back later
//   kNone    whatever may go is gone, or nothing ever will fit    fetch beside the budget (bypass)
//
// A victim must give its use byte exclusively. That fails as long as any process holds the shard,
// this one included; ask_to_release() therefore first asks this process's own pools to unmap it.

void ShardCache::Impl::require_within_budget(const CacheRequest& request,
                                             std::uint64_t size_bytes) const {
  if (size_bytes <= options.budget_bytes || options.bypass_large) return;
  throw Error(ErrorCode::kNoSpace, "the shard is larger than the shard cache's budget",
              in_quotes(redacted_url(request.source.url)) + " (" + human_bytes(size_bytes) +
                  ", budget " + human_bytes(options.budget_bytes) + ")",
              "give the cache " + std::to_string(size_bytes) +
                  " bytes at least, or let large shards bypass it (--cache-bypass-large)");
}

bool ShardCache::Impl::ask_to_release(const std::string& name) {
  std::vector<std::pair<std::shared_ptr<void>, std::function<bool(const std::string&)>>> living;
  {
    const Lock lock(mutex);
    std::erase_if(releasers, [](const Releaser& r) { return r.owner.expired(); });
    for (const Releaser& r : releasers) {
      if (auto owner = r.owner.lock()) living.emplace_back(std::move(owner), r.release);
    }
  }
  // Without the mutex, since a releaser takes locks of its own.
  bool released = false;
  for (const auto& [owner, release] : living) released |= release(name);
  return released;
}

bool ShardCache::Impl::try_to_remove(const RoomLock&, const std::string& name, ByteLocks& locks) {
  const std::uint64_t byte = use_byte(name);
  return locks.try_take(byte) || (ask_to_release(name) && locks.try_take(byte));
}

bool ShardCache::Impl::clear(const ByteLock&, const CacheRequest& request, const std::string& name,
                             std::chrono::milliseconds patience) {
  detail::Pause pause;
  for (const auto start = std::chrono::steady_clock::now();;) {
    const auto size = detail::find_size(directory.shard_path(name));
    if (!size) return true;
    {
      const RoomLock room = lock_room(request);
      if (ByteLocks locks(directory); try_to_remove(room, name, locks)) {
        remove({.name = name, .size_bytes = *size});
        return true;
      }
    }
    if (std::chrono::steady_clock::now() - start >= patience) return false;
    request.cancel.throw_if_cancelled();
    pause();  // a process that only examines the shard, as find() does, lets go of it soon
  }
}

bool ShardCache::Impl::has_room(const std::string& name) const {
  const auto contents = directory.scan();
  const auto is_it = [&](const auto& file) { return file.name == name; };
  return std::any_of(contents.temporaries.begin(), contents.temporaries.end(), is_it) ||
         std::any_of(contents.shards.begin(), contents.shards.end(), is_it);
}

void ShardCache::Impl::remove(const CacheDirectory::Shard& shard) {
  directory.remove(shard.name);
  count([&](ShardCache::Stats& s) {
    ++s.evicted;
    s.evicted_bytes += shard.size_bytes;
  });
}

ShardCache::Impl::Survey ShardCache::Impl::survey(const RoomLock&, const std::string& name,
                                                  const NextUseOf& next_use) const {
  CacheDirectory::Contents contents = directory.scan();
  Survey found;
  for (const auto& temporary : contents.temporaries) {
    if (!sweep_temporary(temporary.path)) found.fetched_bytes += temporary.size_bytes;
  }
  for (auto& shard : contents.shards) {
    if (shard.name == name) {
      found.own_bytes += shard.size_bytes;
      continue;
    }
    found.bytes += shard.size_bytes;
    NextUse next = next_use ? next_use(shard.name) : NextUse{};
    found.shards.push_back({std::move(shard), next});
  }
  const auto rank = [](const Candidate& c) -> EvictionCandidate {
    EvictionCandidate candidate{
        .shard = c.next.shard, .size_bytes = c.shard.size_bytes, .last_use = 0, .next_use = {}};
    if (c.next.kind == NextUse::Kind::kAt) candidate.next_use = c.next.position;
    return candidate;
  };
  std::sort(found.shards.begin(), found.shards.end(), [&](const Candidate& a, const Candidate& b) {
    if (a.is_in_use() != b.is_in_use()) return b.is_in_use();
    if (a.is_known() != b.is_known()) return b.is_known();
    if (a.is_in_use() || !a.is_known()) return a.shard.last_use_ns < b.shard.last_use_ns;
    return leaves_before(rank(a), rank(b), Replacement::kNextUse);
  });
  return found;
}

void ShardCache::Impl::come_down(const RoomLock& room, Survey& found, std::uint64_t max_bytes) {
  ByteLocks locks(directory);
  std::vector<Candidate> stay;
  for (Candidate& candidate : found.shards) {
    if (found.bytes > max_bytes && try_to_remove(room, candidate.shard.name, locks)) {
      remove(candidate.shard);
      found.bytes -= candidate.shard.size_bytes;
    } else {
      stay.push_back(std::move(candidate));
    }
  }
  found.shards = std::move(stay);
}

void ShardCache::Impl::come_down_once(const std::string& held, const NextUseOf& next_use) {
  if (has_come_down) return;
  try {
    auto taken = ByteLock::try_take(directory, kRoomByte);
    if (!taken) return;
    const RoomLock room{*std::move(taken)};
    Survey found = survey(room, held, next_use);
    come_down(room, found, options.budget_bytes - std::min(options.budget_bytes, found.own_bytes));
    has_come_down = true;
  } catch (const Error&) {  // the shard can be read all the same, and the next call tries again
  }
}

ShardCache::Impl::Room ShardCache::Impl::make_room(const RoomLock& room, const std::string& name,
                                                   std::uint64_t size_bytes,
                                                   const NextUseOf& next_use, const Need& need) {
  Survey found = survey(room, name, next_use);
  // Shards that were kept under a larger budget go first, whenever they are needed. Otherwise no
  // fetch would find room for as long as they stay.
  come_down(room, found, options.budget_bytes);
  if (size_bytes > options.budget_bytes) return Room::kNone;
  const std::uint64_t allowed = options.budget_bytes - size_bytes;
  std::uint64_t used = found.bytes + found.fetched_bytes;

  const bool can_wait = need.ahead_for || need.patient;
  ByteLocks locks(directory);  // until the victims are gone
  std::vector<const CacheDirectory::Shard*> victims;
  for (const Candidate& candidate : found.shards) {
    if (used <= allowed || candidate.is_in_use()) break;
    // Passing over the preferred victim would evict one that is needed sooner: wait instead.
    if (candidate.is_known() && can_wait && !candidate.next.may_go_now) return Room::kNotNow;
    // A shard that is needed before the one that is fetched ahead must not go for it.
    if (need.ahead_for && candidate.next.kind == NextUse::Kind::kAt &&
        candidate.next.position <= *need.ahead_for) {
      return Room::kNotNow;
    }
    if (!try_to_remove(room, candidate.shard.name, locks)) {
      if (candidate.is_known() && can_wait) return Room::kNotNow;
      continue;
    }
    used -= candidate.shard.size_bytes;
    victims.push_back(&candidate.shard);
  }
  if (used > allowed) return need.ahead_for ? Room::kNotNow : Room::kNone;
  for (const CacheDirectory::Shard* const shard : victims) remove(*shard);
  return Room::kMade;
}

}  // namespace shardwise
