#pragma once

#include <string>
#include <string_view>

#include "base/error_types.h"
#include "base/file.h"
#include "shardwise/ingest/index_cache.h"

namespace shardwise::detail {

// The folder of the cache of indexes (index_cache.h), and the locks in it.
//
// The lock file: A process may write or remove an index only while it holds the index's lock. The
// file's content names the process that writes, and its time is the time of the index's last use.
// After locking the file, a process calls has_name(), because the file may have been unlinked after
// it was opened, and other processes may lock a new file. Only the holder of the lock unlinks the
// file: remove() as its last step, or leave_nothing_empty() after a failure that left no files.
//
// IndexSlot::remove() tries to lock without waiting, and calls is_unused() again with the lock
// held. It removes the catalogue first, because without a catalogue there is no index. If the
// process is killed after that, the lock file still has its old time. The next write or removal of
// an index with this name then removes the other files. Processes that have opened the index can
// still read it.

/// The purpose of the folder, in error texts.
inline constexpr std::string_view kIndexFolderPurpose = "a folder for indexes";

/// True if the options or the environment name a folder.
bool has_index_folder(const IndexCacheOptions& options);
/// Returns the folder. Errors: InvalidArgument if no folder is known.
std::string index_folder(const IndexCacheOptions& options);
/// Throws if the folder exists and is not suitable.
void require_own_index_folder(const std::string& folder);
/// Creates the folder if it is missing, then calls require_own_index_folder().
void make_index_folder(const std::string& folder);
/// Returns the advice to name another folder.
std::string name_index_folder();

/// Calls `call`, which creates files in the folder. If the system refuses, the error also explains
/// how to choose another folder.
template <class Call>
auto in_index_folder(const Call& call) {
  try {
    return call();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kIo && e.code() != ErrorCode::kNoSpace) throw;
    throw_error(e.code(), std::string(e.what()) + "; or " + name_index_folder());
  }
}

/// The files of one index in the folder. take_turn() gives this process the right to write them.
class IndexSlot {
 public:
  /// @param name  32 hexadecimal digits.
  IndexSlot(const std::string& folder, const std::string& name);

  /// Path of the index, if it is built here.
  const std::string& path() const noexcept { return path_; }
  /// Folder of the index's files, if it is fetched.
  std::string fetched_folder() const { return path_ + ".fetched"; }

  /// Waits until this process may write. The right ends when the returned file is closed or the
  /// process ends. On a file system without locks, every process gets the right at once.
  /// Errors: Cancelled; errors of creating files.
  File take_turn(const IndexCacheOptions& options) const;

  /// Removes a file at the path that is not an index, e.g. because its first bytes are damaged. All
  /// files in this folder are indexes, and a build would refuse to replace the damaged one.
  /// REQUIRES: take_turn() has returned.
  /// Errors: InvalidArgument if a folder or a special file has this path.
  void remove_what_is_no_index() const;

  /// Call this after a failure. Removes the lock file if there is neither an index nor a journal.
  /// REQUIRES: take_turn() has returned.
  void leave_nothing_empty() const noexcept;

  /// Records that the index was used now. Never throws: without the record the index may be removed
  /// early, and is then built or fetched again.
  void note_use() const noexcept;

  /// Removes other indexes that have not been used for long. Never throws, because a leftover only
  /// costs disk space.
  void remove_others_unused() const noexcept;

 private:
  std::string lock_path() const;
  bool is_unused() const;
  void remove() const;

  const std::string folder_;
  const std::string path_;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::has_index_folder;
using detail::in_index_folder;
using detail::index_folder;
using detail::IndexSlot;
using detail::make_index_folder;
using detail::require_own_index_folder;
}  // namespace shardwise
