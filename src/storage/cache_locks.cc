#include "storage/cache_locks.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/errno_error.h"
#include "base/hasher.h"
#include "base/own_directory.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

/// The locks file, which only those may open who may write to the directory: a lock of another
/// user's, who may read it, would hold up all of them.
File open_locks(const CacheDirectory& directory) {
  File file = File::open_or_create(directory.locks_path(), 0600);
  share_as_folder(file);
  return file;
}

std::uint64_t number_in(std::string_view name) {
  return hash64(name) >> 3;  // so that 2k + 2 is still an offset, which is signed
}

}  // namespace

std::uint64_t fetch_byte(std::string_view name) { return 2 * number_in(name) + 1; }
std::uint64_t use_byte(std::string_view name) { return 2 * number_in(name) + 2; }

std::optional<ByteLock> ByteLock::try_take(const CacheDirectory& directory, std::uint64_t byte) {
  for (;;) {
    File file = open_locks(directory);
    if (!file.try_lock_byte(byte, true)) return std::nullopt;
    if (file.has_name()) return ByteLock(std::move(file));
    // The file was unlinked before it was locked: other processes lock a new one.
  }
}

bool LockWatch::look() {
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
  } catch (const Error&) {  // it was removed: the lock is taken in a new one
    is_foreign_ = false;
  }
  if (is_foreign_) holder_ = find_lock_holder(path, byte_, false);
  if (!is_foreign_) foreign_ = {};
  if (!holder_ || !holder_->is_stopped) stopped_ = {};
}

std::string LockWatch::who() const {
  if (holder_) return "(" + holder_->text() + ")";
  return "(a process that this user cannot see: another user's, or in another container; `fuser " +
         directory_.locks_path() + "` shows it to root)";
}

std::string LockWatch::remedy() const {
  if (!holder_) return "end that process, if it is stopped or no user of the cache";
  const std::string process = std::to_string(holder_->process);
  return holder_->is_stopped ? "let it go on (kill -CONT " + process + "), or end it"
                             : "end it if it hangs";
}

bool LockWatch::is_own() const noexcept { return holder_ && holder_->process == ::getpid(); }

bool ByteLocks::try_take(std::uint64_t byte) {
  for (;;) {
    const bool is_first = file_.fd() < 0;
    if (is_first) file_ = open_locks(directory_);
    if (!file_.try_lock_byte(byte, true)) return false;
    if (file_.has_name()) return true;
    // As in ByteLock::try_take(), the file was unlinked. With locks held in it, it cannot be
    // exchanged for the new one.
    if (!is_first) return false;
    file_.close();
  }
}

void UseTable::adopt() noexcept {
  if (process_ == process_generation()) return;
  process_ = process_generation();
  std::erase_if(users_, [](const auto& entry) { return entry.second.kept == 0; });
  for (auto& [name, users] : users_) users = {.passing = 0, .kept = users.kept, .is_locked = false};
}

std::optional<UseTable::Hold> UseTable::try_hold(const std::string& name) {
  const Lock lock(mutex_);
  adopt();
  renew();
  Users& users = users_[name];
  if (directory_.is_read_only()) {
    // A lock keeps the shard from being evicted. Where there can be none, a mapping stays readable
    // all the same.
    if (!users.is_locked) users.is_locked = try_lock_without_writing(use_byte(name));
    ++users.passing;
    return Hold{.process = process_, .is_kept = false};
  }
  if (!users.is_locked) users.is_locked = file_.try_lock_byte(use_byte(name), false);
  if (!users.is_locked) {
    if (users.kept + users.passing == 0) users_.erase(name);
    return std::nullopt;
  }
  ++users.passing;
  return Hold{.process = process_, .is_kept = false};
}

void UseTable::keep(const std::string& name, Hold& hold) noexcept {
  const Lock lock(mutex_);
  adopt();
  const auto found = users_.find(name);
  if (found == users_.end() || hold.is_kept || hold.process != process_) return;
  --found->second.passing;
  ++found->second.kept;
  hold.is_kept = true;
}

void UseTable::release(const std::string& name, const Hold& hold) noexcept {
  const Lock lock(mutex_);
  adopt();
  const auto found = users_.find(name);
  if (found == users_.end() || (!hold.is_kept && hold.process != process_)) return;
  Users& users = found->second;
  --(hold.is_kept ? users.kept : users.passing);
  if (users.kept + users.passing > 0) return;
  if (users.is_locked) file_.unlock_byte(use_byte(name));
  users_.erase(found);
}

bool UseTable::try_lock_without_writing(std::uint64_t byte) {
  try {
    return file_.fd() >= 0 && file_.try_lock_byte(byte, false);
  } catch (const NoDescriptor&) {
    throw;
  } catch (const Error&) {  // a file system without locks
    return false;
  }
}

void UseTable::renew() {
  if (directory_.is_read_only()) {
    if (file_.fd() >= 0) return;
    try {
      file_ = File::open_read(directory_.locks_path());
    } catch (const NoDescriptor&) {
      throw;
    } catch (const Error&) {  // there is none, or this user may not read it
    }
    return;
  }
  while (file_.fd() < 0 || !file_.has_name()) {
    File fresh = open_locks(directory_);
    for (auto& [name, users] : users_) {
      // This may fail, if the shard is being evicted by now. Its mapping stays readable.
      users.is_locked = fresh.try_lock_byte(use_byte(name), false);
    }
    file_ = std::move(fresh);
  }
}

}  // namespace shardwise::detail
