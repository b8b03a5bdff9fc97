#include "storage/cache_room.h"

#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

// How room is made:
//
//   used    = all shards under their final names + all locked temporary files (survey())
//   allowed = budget_bytes - size of the new shard
//
//   make_if_counted()  with the room byte locked: creates the temporary file, if the shard fits
//                      according to the ledger's count
//   make_plan()        without that lock: lists the files, determines when each is needed, chooses
//                      victims (eviction.h), and locks the victims' use bytes. A use byte cannot be
//                      locked while a process pins the shard. The pools of this process are
//                      therefore asked to unmap the shard first (CacheReaders::ask_to_release())
//   apply()            with the room byte locked: checks that the cache has not changed since the
//                      listing, removes the victims, and creates the temporary file. If the cache
//                      has changed, a new plan is made
//
// All processes of the machine contend for the room byte. While a thread holds that lock, it does
// not list files, sync, or call code outside the cache. A temporary file gets its full size before
// the lock is released. If the source does not report the shard's size, ShardFetch::Impl::grow()
// makes room step by step. Two processes therefore never count the same free bytes.
//
// A failed request evicts only the bytes by which the cache already exceeded its budget. Results,
// and what the caller does next:
//
//   kMade    the temporary file was created
//   kNotNow  a victim is pinned, or is needed before      retry later (next_stage())
//            the new shard
//   kNone    no victim is left, or the shard will never   fetch outside the budget, or read single
//            fit                                          samples from the source

namespace {

/// After this many plans, the last one is applied even if the cache has changed since its listing.
/// The bytes in use are then taken from the ledger.
constexpr int kMaxListings = 5;

std::int64_t realtime_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

/// True if the disk is too full for a file of this size; false if a limit of this process
/// (RLIMIT_FSIZE) is the cause.
bool is_full_disk(const Error& error, std::uint64_t size_bytes) {
  rlimit limit{};
  const bool has_limit = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size_bytes;
  return error.code() == ErrorCode::kNoSpace && !has_limit;
}

}  // namespace

void CacheRoom::require_within_budget(const CacheRequest& request, std::uint64_t size_bytes) const {
  if (size_bytes <= options_.budget_bytes || options_.bypass_large) return;
  throw Error(ErrorCode::kNoSpace, "the shard is larger than the shard cache's budget",
              in_quotes(redacted_url(request.source.url)) + " (" + human_bytes(size_bytes) +
                  ", budget " + human_bytes(options_.budget_bytes) + ")",
              "give the cache at least " + std::to_string(size_bytes) +
                  " bytes, or let large shards bypass the cache (" +
                  spelled("ShardCache::Options::bypass_large") + ")");
}

bool CacheRoom::try_to_remove(const std::string& name, ByteLocks& locks) {
  const std::uint64_t byte = use_byte(name);
  return locks.try_take(byte) || (readers_.ask_to_release(name) && locks.try_take(byte));
}

bool CacheRoom::evict_stale(const ByteLock&, const CacheRequest& request, const std::string& name,
                            std::chrono::milliseconds timeout) {
  Pause pause;
  for (const auto start = std::chrono::steady_clock::now();;) {
    const auto size = find_size(directory_.shard_path(name));
    if (!size) return true;
    if (ByteLocks locks(directory_); try_to_remove(name, locks)) {
      const auto room = locks_.lock_room(request.cancel);
      ledger.change([&] { return -static_cast<std::int64_t>(remove(room, name).value_or(0)); });
      return true;
    }
    if (std::chrono::steady_clock::now() - start >= timeout) return false;
    request.cancel.throw_if_cancelled();
    pause();  // a process that only examines the shard, as find() does, soon unpins it
  }
}

bool CacheRoom::evict_unused(const std::string& name) {
  const auto lock = ByteLock::try_take(directory_, use_byte(name));
  if (!lock) return false;
  const auto room = locks_.lock_room({});
  ledger.change([&] { return -evict(room, name); });
  return true;
}

bool CacheRoom::has_room(const std::string& name) {
  const auto before = ledger.read();
  {
    // Every new file changes the ledger, so an unchanged ledger means that there is still no file.
    const Lock lock(mutex_);
    const auto at = without_room_.find(name);
    if (at != without_room_.end() && before.doubt != 0 && at->second == before) return false;
  }
  const auto contents = directory_.scan(CacheDirectory::Listed::kBytes);
  const auto is_it = [&](const auto& file) { return file.name == name; };
  const bool is_there =
      std::any_of(contents.temporaries.begin(), contents.temporaries.end(), is_it) ||
      std::any_of(contents.shards.begin(), contents.shards.end(), is_it);
  const Lock lock(mutex_);
  if (is_there) {
    without_room_.erase(name);
  } else {
    without_room_.insert_or_assign(name, before);
  }
  return is_there;
}

std::optional<std::uint64_t> CacheRoom::remove(const CacheLocks::Room&, const std::string& name) {
  // The shard may have been evicted or replaced since the listing.
  const auto size_bytes = find_size(directory_.shard_path(name));
  directory_.remove(name);
  return size_bytes;
}

std::int64_t CacheRoom::evict(const CacheLocks::Room& room, const std::string& name) {
  const auto size_bytes = remove(room, name);
  if (!size_bytes) return 0;
  counts_.add([&](ShardCache::Stats& s) {
    ++s.evicted;
    s.evicted_bytes += *size_bytes;
  });
  return static_cast<std::int64_t>(*size_bytes);
}

void CacheRoom::spare_unknown(Survey& found) const {
  const auto users = board_.others("");
  std::uint64_t num_unknown = 0;
  std::int64_t began_ns = std::numeric_limits<std::int64_t>::max();
  for (const OtherUser& user : users) {
    if (!user.future->uses().empty()) continue;
    ++num_unknown;
    began_ns = std::min(began_ns, user.pace.began_ns);
  }
  // If all users' orders are unknown, plain LRU applies.
  if (num_unknown == 0 || num_unknown == users.size()) return;
  const std::uint64_t share = options_.budget_bytes / users.size() * num_unknown;
  std::vector<EvictionCandidate*> candidates;
  for (Candidate& candidate : found.shards) candidates.push_back(&candidate);
  // Convert the start time: users post monotonic times, but files have wall-clock times.
  const std::int64_t since = realtime_ns() - (monotonic_ns() - began_ns);
  spare_share(candidates, share, since);
}

CacheRoom::Survey CacheRoom::survey(const std::string& name, const NextUseOf& next_use) const {
  Survey found;
  found.before = ledger.read_before_listing();
  CacheDirectory::Contents contents = directory_.scan(CacheDirectory::Listed::kBytes);
  for (const auto& temporary : contents.temporaries) {
    if (!sweep_temporary(temporary.path)) found.used_bytes += temporary.size_bytes;
  }
  found.shards.reserve(contents.shards.size());
  for (CacheDirectory::Shard& shard : contents.shards) {
    found.used_bytes += shard.size_bytes;
    if (shard.name == name) continue;
    found.bytes += shard.size_bytes;
    const EvictionCandidate candidate{.size_bytes = shard.size_bytes,
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

void CacheRoom::mark_stuck(Survey& found) {
  const auto now = std::chrono::steady_clock::now();
  const Lock lock(mutex_);
  if (stuck_since_.empty()) return;
  auto before = std::exchange(stuck_since_, {});
  for (Candidate& candidate : found.shards) {
    const auto at = before.find(candidate.shard.name);
    // If the shard is needed before the new one, a reader may have pinned it for that use. Then its
    // time does not count, and starts again.
    if (at == before.end() || !candidate.next.may_go_now) continue;
    candidate.is_stuck = now - at->second >= options_.room_timeout;
    stuck_since_.insert(before.extract(at));
  }
}

bool CacheRoom::try_victim(const Candidate& candidate, ByteLocks& locks) {
  const std::string& name = candidate.shard.name;
  const bool is_free = try_to_remove(name, locks);
  const auto now = std::chrono::steady_clock::now();
  const Lock lock(mutex_);
  if (is_free) {
    stuck_since_.erase(name);
  } else if (candidate.next.is_known() && candidate.next.may_go_now) {
    stuck_since_.emplace(name, now);
  }
  return is_free;
}

std::optional<std::uint64_t> CacheRoom::counted(const CacheLocks::Room&,
                                                const Survey& found) const {
  return ledger.is_unchanged_since(found.before) ? std::optional(found.used_bytes) : std::nullopt;
}

void CacheRoom::evict(const CacheLocks::Room& room, const Survey& found,
                      const std::vector<std::size_t>& victims) {
  ledger.change(
      [&] {
        std::int64_t removed = 0;
        for (const std::size_t victim : victims) {
          removed += evict(room, found.shards[victim].shard.name);
        }
        return -removed;
      },
      counted(room, found));
}

std::optional<std::uint64_t> CacheRoom::trim(const Survey& found, std::uint64_t max_bytes,
                                             Spare spare, const CancelToken* cancel) {
  ByteLocks locks(directory_);
  std::vector<std::size_t> victims;
  std::uint64_t evicted = 0;
  std::uint64_t left = found.bytes;  // bytes not yet evicted or counted as evicted
  for (std::size_t i = 0; i < found.shards.size() && left > max_bytes; ++i) {
    const Candidate& candidate = found.shards[i];
    const bool is_spared =
        spare == Spare::kNeeded && candidate.next.is_known() && !candidate.next.may_go_now;
    if (!is_spared && try_to_remove(candidate.shard.name, locks)) {
      victims.push_back(i);
      evicted += candidate.size_bytes;
    } else if (spare == Spare::kNone || candidate.is_stuck) {
      continue;
    }
    left -= candidate.size_bytes;
  }
  if (victims.empty()) return 0;
  const auto room = cancel == nullptr ? locks_.try_lock_room() : locks_.lock_room(*cancel);
  if (!room) return std::nullopt;
  evict(*room, found, victims);
  return evicted;
}

bool CacheRoom::trim_to_budget(const std::string& pinned, const NextUseOf& next_use, Spare spare) {
  try {
    const Survey found = survey(pinned, next_use);
    const std::uint64_t pinned_bytes =
        pinned.empty() ? 0 : find_size(directory_.shard_path(pinned)).value_or(0);
    const std::uint64_t max = options_.budget_bytes - std::min(options_.budget_bytes, pinned_bytes);
    const auto evicted = trim(found, max, spare, nullptr);
    // A shard that is being fetched outside the budget counts only in `used_bytes`, until its
    // rename.
    return evicted && (spare == Spare::kNone || found.used_bytes - *evicted <= max);
  } catch (const Error&) {  // the cached shards stay readable, and the next call tries again
    return false;
  }
}

void CacheRoom::trim_once(const std::string& pinned, const NextUseOf& next_use) {
  if (!is_trimmed_ && trim_to_budget(pinned, next_use, Spare::kNone)) is_trimmed_ = true;
}

void CacheRoom::trim_overrun(const NextUseOf& next_use) {
  if (has_overrun_.exchange(false) && !trim_to_budget("", next_use, Spare::kNeeded)) {
    has_overrun_ = true;
  }
}

Room CacheRoom::make(const Wanted& wanted, const MakeFile& make_file) {
  std::uint64_t budget_bytes = options_.budget_bytes;
  for (bool is_first = true;; is_first = false) {
    try {
      return make_within(budget_bytes, wanted, make_file);
    } catch (const Error& full) {
      if (!is_full_disk(full, wanted.size_bytes)) throw;
      // The disk is smaller than the budget: use the cache's present size as the budget.
      const std::uint64_t used = survey(wanted.name, nullptr).used_bytes;
      const bool is_vain = used < wanted.size_bytes || (!is_first && used >= budget_bytes);
      if (is_vain) throw;
      budget_bytes = used;
    }
  }
}

void CacheRoom::with_disk_space(const Wanted& wanted, const std::function<void()>& take) {
  for (;;) {
    try {
      return take();
    } catch (const Error& full) {
      if (!is_full_disk(full, wanted.size_bytes)) throw;
      const Survey found = survey(wanted.name, wanted.next_use);
      const std::uint64_t left = found.bytes - std::min(found.bytes, wanted.size_bytes);
      if (trim(found, left, Spare::kNone, &wanted.request.cancel) == 0) throw;
    }
  }
}

void CacheRoom::make_file_of(const CacheLocks::Room&, const Wanted& wanted,
                             const MakeFile& make_file, bool is_overflow,
                             std::optional<std::uint64_t> used_bytes) const {
  ledger.change(
      [&] {
        make_file(is_overflow);
        return static_cast<std::int64_t>(wanted.size_bytes);
      },
      used_bytes);
}

bool CacheRoom::make_if_counted(std::uint64_t budget_bytes, const Wanted& wanted,
                                const MakeFile& make_file) {
  const auto room = locks_.lock_room(wanted.request.cancel);
  const auto used = ledger.read().used_bytes;
  if (!used || *used > budget_bytes || wanted.size_bytes > budget_bytes - *used) return false;
  make_file_of(room, wanted, make_file, false, {});
  return true;
}

CacheRoom::Plan CacheRoom::make_plan(std::uint64_t budget_bytes, const Wanted& wanted) {
  const bool is_disk_full = budget_bytes != options_.budget_bytes;
  const auto probe = [&] {
    Survey found = survey(wanted.name, wanted.next_use);
    mark_stuck(found);
    return found;
  };
  Plan plan{.found = probe(), .locks = ByteLocks(directory_), .eviction = {}};
  // First trim a cache that exceeds its budget, because shards were in use or the budget was larger
  // before. Until it is trimmed, no fetch finds room. Count pinned shards as evicted, so that no
  // shard that is needed sooner is evicted instead of them.
  if (plan.found.bytes > options_.budget_bytes) {
    const bool spares_needed = !is_disk_full && may_exceed_budget(wanted.urgency);
    if (trim(plan.found, options_.budget_bytes, spares_needed ? Spare::kNeeded : Spare::kPinned,
             &wanted.request.cancel) != 0) {
      plan.found = probe();
    }
  }
  plan.eviction = choose_victims(
      plan.found.shards,
      {.size_bytes = wanted.size_bytes,
       .budget_bytes = budget_bytes,
       .used_bytes = plan.found.used_bytes,
       .urgency = wanted.urgency,
       .needed_at = wanted.needed_at,
       .is_disk_full = is_disk_full},
      [&](const Candidate& candidate) { return try_victim(candidate, plan.locks); },
      [&](const Candidate& candidate) { return readers_.is_in_use(candidate.shard.name); });
  return plan;
}

bool CacheRoom::apply(const Plan& plan, const Wanted& wanted, const MakeFile& make_file,
                      bool is_last) {
  const auto room = locks_.lock_room(wanted.request.cancel);
  if (ledger.read() != plan.found.before && !is_last) return false;
  const bool is_overflow = plan.eviction.room == Room::kNone;
  if (plan.eviction.victims.empty()) {
    make_file_of(room, wanted, make_file, is_overflow, counted(room, plan.found));
  } else {
    evict(room, plan.found, plan.eviction.victims);
    make_file_of(room, wanted, make_file, is_overflow, {});
  }
  return true;
}

Room CacheRoom::make_within(std::uint64_t budget_bytes, const Wanted& wanted,
                            const MakeFile& make_file) {
  if (make_if_counted(budget_bytes, wanted, make_file)) return Room::kMade;
  for (int listing = 1;; ++listing) {
    const Plan plan = make_plan(budget_bytes, wanted);
    if (plan.eviction.has_overrun) has_overrun_ = true;
    const Room room = plan.eviction.room;
    if (room == Room::kNotNow || (room == Room::kNone && !wanted.may_overflow)) return room;
    if (room == Room::kNone && budget_bytes < options_.budget_bytes) {
      throw Error(
          ErrorCode::kNoSpace, "the disk of the shard cache is full, and no shard can be evicted",
          in_quotes(directory_.path()) + " (" + human_bytes(wanted.size_bytes) + " are needed)",
          "free space, or put the cache on another disk");
    }
    if (apply(plan, wanted, make_file, listing >= kMaxListings)) return room;
  }
}

void CacheRoom::remove_leftovers(const CacheDirectory::Contents& contents) const {
  for (const auto& temporary : contents.temporaries) sweep_temporary(temporary.path);
  for (const std::string& path : contents.temporary_notes) sweep_temporary(path);
  std::unordered_set<std::string_view> shards;
  shards.reserve(contents.shards.size());
  for (const auto& shard : contents.shards) shards.insert(shard.name);
  std::set<std::string> without_shard;
  for (const auto* const names : {&contents.records, &contents.notes}) {
    for (const std::string& name : *names) {
      if (!shards.contains(name)) without_shard.insert(name);
    }
  }
  for (const std::string& name : without_shard) {
    // Take the lock, because a fetch may just have written this record, before its shard.
    const auto lock = locks_.try_lock_fetch(name);
    if (lock && !find_size(directory_.shard_path(name))) {
      directory_.remove_record(name);
      directory_.remove_note(name);
    }
  }
}

void CacheRoom::take_stock() {
  const CacheLedger::Count before = ledger.read_before_listing();
  const auto contents = directory_.scan();
  remove_leftovers(contents);
  std::uint64_t used_bytes = 0;
  for (const auto& shard : contents.shards) used_bytes += shard.size_bytes;
  for (const auto& temporary : contents.temporaries) {
    if (find_size(temporary.path)) used_bytes += temporary.size_bytes;
  }
  // Do not wait here: the holder of the room byte may be stopped, and no shard is needed yet.
  const auto room = locks_.try_lock_room();
  if (!room || !ledger.is_unchanged_since(before)) return ledger.doubt();
  ledger.change([] { return 0; }, used_bytes);
}

}  // namespace shardwise::detail
