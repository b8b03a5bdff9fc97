#include "storage/cache_locks.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/errno_error.h"
#include "base/hasher.h"
#include "base/own_directory.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

/// Opens the locks file. Only users who may write to the directory may open it, because a read lock
/// of any other user would block all writers.
File open_locks(const CacheDirectory& directory) {
  File file = File::open_or_create(directory.locks_path(), 0600);
  share_as_folder(file);
  return file;
}

std::uint64_t number_in(std::string_view name) {
  // Shifted, so that the largest offset, that of use_byte(), fits in a signed file offset.
  return hash64(name) >> 3;
}

}  // namespace

std::uint64_t fetch_byte(std::string_view name) { return 2 * number_in(name) + 1; }
std::uint64_t use_byte(std::string_view name) { return 2 * number_in(name) + 2; }

std::optional<ByteLock> ByteLock::try_take(const CacheDirectory& directory, std::uint64_t byte) {
  ByteLocks locks(directory);
  if (!locks.try_take(byte)) return std::nullopt;
  return ByteLock(std::move(locks.file_));
}

bool LockWatch::probe() {
  constexpr std::chrono::seconds kLookEvery{1};
  const auto now = Clock::now();
  const Clock::duration passed = std::min<Clock::duration>(now - last_, kLookEvery);
  last_ = now;
  waited_ += passed;
  if (holder_ && holder_->is_stopped) stopped_ += passed;
  if (is_foreign_) foreign_ += passed;
  if (waited_ < next_look_) return false;
  next_look_ = waited_ + kLookEvery;
  look_now();
  return true;
}

void LockWatch::look_now() {
  const std::string path = directory_.locks_path();
  holder_ = find_lock_holder(path, byte_);
  try {
    is_foreign_ = !holder_ && File::open_read(path).is_byte_shared(byte_);
  } catch (const NoDescriptor&) {
    throw;
  } catch (const Error&) {  // the file was removed: lock the new file
    is_foreign_ = false;
  }
  if (is_foreign_) holder_ = find_lock_holder(path, byte_, false);
  if (!is_foreign_) foreign_ = {};
  if (!holder_ || !holder_->is_stopped) stopped_ = {};
}

std::string LockWatch::who() const {
  if (holder_) return "(" + holder_->text() + ")";
  return "(a process of another user or container; as root, `fuser " + directory_.locks_path() +
         "` shows the process)";
}

std::string LockWatch::remedy() const {
  if (!holder_) return "end that process if it is suspended or does not use the cache";
  const std::string process = std::to_string(holder_->process);
  return holder_->is_stopped ? "continue that process (kill -CONT " + process + "), or end it"
                             : "end that process if it hangs";
}

bool LockWatch::is_own() const noexcept { return holder_ && holder_->process == ::getpid(); }

bool ByteLocks::try_take(std::uint64_t byte) {
  for (;;) {
    const bool is_first = file_.fd() < 0;
    if (is_first) file_ = open_locks(directory_);
    if (!file_.try_lock_byte(byte, true)) return false;
    if (file_.has_name()) return true;
    // The file was unlinked before the lock was taken. Other processes now lock a new file; try
    // again, unless this object already holds locks in the old file.
    if (!is_first) return false;
    file_.close();
  }
}

void PinTable::adopt() noexcept {
  if (process_ == process_generation()) return;
  process_ = process_generation();
  std::erase_if(users_, [](const auto& entry) { return entry.second.shared == 0; });
  for (auto& [name, users] : users_) users = {.own = 0, .shared = users.shared, .is_locked = false};
}

std::optional<PinTable::Pin> PinTable::try_pin(const std::string& name) {
  const Lock lock(mutex_);
  adopt();
  renew();
  const auto found = users_.find(name);
  const bool was_locked = found != users_.end() && found->second.is_locked;
  const bool is_read_only = directory_.is_read_only();
  const std::uint64_t byte = use_byte(name);
  const bool is_locked = was_locked || (is_read_only ? try_lock_without_writing(byte)
                                                     : file_.try_lock_byte(byte, false));
  // In a read-only cache the shard may be pinned without the lock: it may then be evicted, but its
  // mapping stays readable.
  if (!is_locked && !is_read_only) return std::nullopt;
  Users& users = users_[name];
  users.is_locked = is_locked;
  ++users.own;
  return Pin{.process = process_, .is_shared = false};
}

void PinTable::share(const std::string& name, Pin& pin) noexcept {
  const Lock lock(mutex_);
  adopt();
  const auto found = users_.find(name);
  if (found == users_.end() || pin.is_shared || pin.process != process_) return;
  --found->second.own;
  ++found->second.shared;
  pin.is_shared = true;
}

void PinTable::unpin(const std::string& name, const Pin& pin) noexcept {
  const Lock lock(mutex_);
  adopt();
  const auto found = users_.find(name);
  if (found == users_.end() || (!pin.is_shared && pin.process != process_)) return;
  Users& users = found->second;
  --(pin.is_shared ? users.shared : users.own);
  if (users.shared + users.own > 0) return;
  if (users.is_locked) file_.unlock_byte(use_byte(name));
  users_.erase(found);
}

bool PinTable::try_lock_without_writing(std::uint64_t byte) {
  try {
    return file_.fd() >= 0 && file_.try_lock_byte(byte, false);
  } catch (const NoDescriptor&) {
    throw;
  } catch (const Error&) {  // the file system has no locks
    return false;
  }
}

void PinTable::renew() {
  if (directory_.is_read_only()) {
    if (file_.fd() >= 0) return;
    try {
      file_ = File::open_read(directory_.locks_path());
    } catch (const NoDescriptor&) {
      throw;
    } catch (const Error&) {  // missing, or not readable for this user
    }
    return;
  }
  while (file_.fd() < 0 || !file_.has_name()) {
    File fresh = open_locks(directory_);
    for (auto& [name, users] : users_) {
      // This fails if the shard is being evicted. Its mapping stays readable.
      users.is_locked = fresh.try_lock_byte(use_byte(name), false);
    }
    file_ = std::move(fresh);
  }
}

/// Calls `attempt` repeatedly until it returns a value. Returns that value.
template <class Attempt>
auto CacheLocks::wait_for(std::uint64_t byte, std::string_view failure, const CancelToken& cancel,
                          const Attempt& attempt) const {
  Pause pause;
  for (LockWatch watch(directory_, byte);;) {
    if (auto got = attempt()) return *std::move(got);
    cancel.throw_if_cancelled();
    watch.probe();
    if (watch.waited() > options_.wait_timeout) {
      watch.look_now();
      throw Error(ErrorCode::kIo, failure, in_quotes(directory_.path()) + " " + watch.who(),
                  watch.remedy());
    }
    pause();
  }
}

std::optional<CacheLocks::Room> CacheLocks::try_lock_room() const {
  auto lock = ByteLock::try_take(directory_, kRoomByte);
  if (!lock) return std::nullopt;
  return Room{*std::move(lock)};
}

CacheLocks::Room CacheLocks::lock_room(const CancelToken& cancel) const {
  return wait_for(kRoomByte,
                  "timed out waiting for another process to free space in the shard cache", cancel,
                  [&] { return try_lock_room(); });
}

PinTable::Pin CacheLocks::pin(const std::string& name, const CancelToken& cancel) {
  return wait_for(use_byte(name), "timed out waiting for another process to evict a shard", cancel,
                  [&] { return pins.try_pin(name); });
}

// How long to wait for another process that fetches the shard. Such a process may make no visible
// progress for long, e.g. while it waits for room, for its server or between retries. Its own limit
// is Fetchers::Options::retry_for, and its lock is freed when it ends. While the process is
// visible, this call therefore waits without a limit, unless the process stays stopped (SIGSTOP)
// for wait_timeout. If the process is not visible, e.g. in another container, only its files show
// progress. This call then times out if they do not change for wait_timeout + retry_for.
ByteLock CacheLocks::lock_fetch(const CacheRequest& request, const std::string& name) {
  Pause pause;
  LockWatch watch(directory_, fetch_byte(name));
  std::chrono::milliseconds last_growth{};
  std::int64_t mtime_ns = 0;
  for (bool waits = false;; waits = true) {
    if (auto lock = try_lock_fetch(name)) return *std::move(lock);
    if (!waits) counts_.add([](ShardCache::Stats& s) { ++s.waits; });
    request.cancel.throw_if_cancelled();
    if (watch.probe()) {
      report_wait(request, name, watch);
      const std::int64_t latest_ns = watch.holder() ? mtime_ns : latest_write_ns(name);
      const bool is_alive = watch.holder() || std::exchange(mtime_ns, latest_ns) != latest_ns;
      if (is_alive) last_growth = watch.waited();
    }
    require_progress(request, watch, watch.waited() - last_growth);
    pause();
  }
}

void CacheLocks::require_progress(const CacheRequest& request, const LockWatch& watch,
                                  std::chrono::milliseconds silent) const {
  const auto seconds = [](std::chrono::milliseconds time) {
    return std::to_string(time.count() / 1000) + " s";
  };
  const auto url = [&] { return in_quotes(redacted_url(request.source.url)); };
  if (watch.stopped_for() > options_.wait_timeout) {
    throw Error(
        ErrorCode::kIo, "the process that is fetching the shard is suspended",
        url() + " (" + watch.holder()->text() + ", for " + seconds(watch.stopped_for()) + ")",
        watch.remedy());
  }
  if (watch.foreign_for() > options_.wait_timeout) {
    throw Error(
        ErrorCode::kIo, "a process that does not use the shard cache holds the shard's lock",
        url() + ", " + in_quotes(directory_.locks_path()) + " " + watch.who(), watch.remedy());
  }
  if (silent > options_.wait_timeout + retry_for_) {
    throw Error(ErrorCode::kIo, "the process that is fetching the shard makes no progress",
                url() + " (no bytes arrived for " + seconds(silent) + ")",
                "check whether a process that uses " + in_quotes(directory_.path()) +
                    " is suspended, then end that process");
  }
}

std::int64_t CacheLocks::latest_write_ns(const std::string& name) const {
  // Judge by mtime, because a temporary file has its full size from the start. A compressed shard
  // has two files, of which only one is being written.
  std::int64_t latest_ns = 0;
  for (const auto& temporary : directory_.scan().temporaries) {
    if (temporary.name == name) latest_ns = std::max(latest_ns, temporary.mtime_ns);
  }
  return latest_ns;
}

void CacheLocks::report_wait(const CacheRequest& request, const std::string& name,
                             const LockWatch& watch) {
  if (!options_.on_wait || watch.is_own()) return;
  const bool is_stopped = watch.holder() && watch.holder()->is_stopped;
  {
    const Lock lock(mutex_);
    if (!reported_.emplace(name, is_stopped).second) return;
  }
  options_.on_wait(redacted_url(request.source.url), watch.waited(),
                   watch.holder() ? watch.holder()->text() : "another process");
}

}  // namespace shardwise::detail
