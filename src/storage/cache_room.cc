#include <algorithm>

#include "shardwise/base/error.h"
#include "shardwise/base/text.h"
#include "shardwise/base/url.h"
#include "shardwise/storage/replacement.h"
#include "storage/cache_state.h"

namespace shardwise {

using detail::ByteLocks;
using detail::CacheDirectory;
using detail::use_byte;

void ShardCache::Impl::require_within_budget(const CacheRequest& request,
                                             std::uint64_t size_bytes) const {
  if (size_bytes <= options.budget_bytes || options.bypass_large) return;
  throw Error(ErrorCode::kNoSpace, "the shard is larger than the shard cache's budget",
              in_quotes(redacted_url(request.url)) + " (" + human_bytes(size_bytes) + ", budget " +
                  human_bytes(options.budget_bytes) + ")",
              "give the cache " + std::to_string(size_bytes) +
                  " bytes at least, or let large shards bypass it (--cache-bypass-large)");
}

bool ShardCache::Impl::ask_to_release(const std::string& name) {
  std::vector<std::pair<std::shared_ptr<void>, std::function<bool(const std::string&)>>> living;
  {
    const std::lock_guard lock(mutex);
    std::erase_if(releasers, [](const Releaser& r) { return r.owner.expired(); });
    for (const Releaser& r : releasers) {
      if (auto owner = r.owner.lock()) living.emplace_back(std::move(owner), r.release);
    }
  }
  bool released = false;
  for (const auto& [owner, release] : living) released |= release(name);
  return released;
}

bool ShardCache::Impl::try_to_remove(const std::string& name, ByteLocks& locks) {
  const std::uint64_t byte = use_byte(name);
  return locks.try_take(byte) || (ask_to_release(name) && locks.try_take(byte));
}

bool ShardCache::Impl::clear(const CacheRequest& request, const std::string& name,
                             std::chrono::milliseconds patience) {
  detail::Pause pause;
  for (const auto start = std::chrono::steady_clock::now();;) {
    const auto size = detail::find_size(directory.shard_path(name));
    if (!size) return true;
    {
      const detail::ByteLock room = lock_room(request);
      if (ByteLocks locks(directory); try_to_remove(name, locks)) {
        remove({.name = name, .size_bytes = *size});
        return true;
      }
    }
    if (std::chrono::steady_clock::now() - start >= patience) return false;
    detail::throw_if_cancelled(request);
    pause();  // for those who only look at it
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
  count([&](ShardCacheStats& s) {
    ++s.evicted;
    s.evicted_bytes += shard.size_bytes;
  });
}

ShardCache::Impl::Room ShardCache::Impl::make_room(const std::string& name,
                                                   std::uint64_t size_bytes,
                                                   const NextUseOf& next_use, const Need& need) {
  if (size_bytes > options.budget_bytes) return Room::kNone;
  const std::uint64_t allowed = options.budget_bytes - size_bytes;
  struct Candidate {
    const CacheDirectory::Shard* shard;
    NextUse next;
  };
  const CacheDirectory::Contents contents = directory.scan();
  std::vector<Candidate> candidates;
  std::uint64_t used = 0;
  for (const auto& temporary : contents.temporaries) {
    if (!sweep_temporary(temporary.path)) used += temporary.size_bytes;
  }
  for (const auto& shard : contents.shards) {
    if (shard.name == name) continue;  // what is fetched takes its place
    used += shard.size_bytes;
    const NextUse next = next_use ? next_use(shard.name) : NextUse{};
    if (next.kind != NextUse::Kind::kInUse) candidates.push_back({&shard, next});
  }
  if (used <= allowed) return Room::kMade;

  const auto known = [](const NextUse& next) { return next.kind != NextUse::Kind::kUnknown; };
  const auto rank = [](const Candidate& c) -> EvictionCandidate {
    EvictionCandidate candidate{
        .shard = c.next.shard, .size_bytes = c.shard->size_bytes, .last_use = 0, .next_use = {}};
    if (c.next.kind == NextUse::Kind::kAt) candidate.next_use = c.next.position;
    return candidate;
  };
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    if (known(a.next) != known(b.next)) return known(b.next);
    if (!known(a.next)) return a.shard->last_use_ns < b.shard->last_use_ns;
    return leaves_before(rank(a), rank(b), Replacement::kNextUse);
  });

  const bool can_wait = need.ahead_for || need.patient;
  ByteLocks locks(directory);  // until the victims are gone
  std::vector<const CacheDirectory::Shard*> victims;
  for (const Candidate& candidate : candidates) {
    if (used <= allowed) break;
    const bool is_known = known(candidate.next);
    if (is_known && can_wait && !candidate.next.may_go_now) return Room::kNotNow;
    if (need.ahead_for && candidate.next.kind == NextUse::Kind::kAt &&
        candidate.next.position <= *need.ahead_for) {
      return Room::kNotNow;
    }
    if (!try_to_remove(candidate.shard->name, locks)) {
      if (is_known && can_wait) return Room::kNotNow;
      continue;
    }
    used -= candidate.shard->size_bytes;
    victims.push_back(candidate.shard);
  }
  if (used > allowed) return need.ahead_for ? Room::kNotNow : Room::kNone;
  for (const CacheDirectory::Shard* const shard : victims) remove(*shard);
  return Room::kMade;
}

}  // namespace shardwise
