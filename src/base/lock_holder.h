#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/base/export.h"

// Finds the processes that hold locks on bytes of a file. For an "open file description" lock, the
// kernel reports the holder's pid as -1. But /proc/PID/fdinfo lists the locks of each process's
// open files.

namespace shardwise::detail {

/// Returns the processes that have files of a folder open, keyed by file name. Limits and cost are
/// those of LockHolders::of_file().
SHARDWISE_EXPORT std::multimap<std::string, std::int64_t> processes_with_files_in(
    const std::string& folder);

class SHARDWISE_EXPORT LockHolders {
 public:
  /// Reads the current state. It does not see processes of other containers, or of other users
  /// unless this process is privileged. It skips unreadable files instead of throwing.
  /// Cost: visits every open file of every process.
  static LockHolders of_file(const std::string& path);

  /// Returns the pids of the processes that lock the byte, ascending, each once.
  std::vector<std::int64_t> of_byte(std::uint64_t offset, bool exclusively = false) const;

 private:
  struct Held {
    std::int64_t pid = 0;
    bool is_exclusive = false;
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };
  std::vector<Held> held_;
};

/// A process that holds a lock.
struct LockHolder {
  int process = 0;
  std::string program;      ///< the system's name of the program, at most 15 bytes
  bool is_stopped = false;  ///< true if a signal or a debugger stopped it

  /// Returns e.g. "process 17 (python3)". The text also states whether the process is suspended.
  SHARDWISE_EXPORT std::string text() const;
};

/// Finds the process that holds a lock of File::try_lock_byte() on a byte of a file. Returns
/// nothing if the byte is not locked, or if the holder belongs to another user or container.
/// @param exclusively  if true, only an exclusive lock counts; if false, shared locks count, too.
/// Cost: that of LockHolders::of_file().
SHARDWISE_EXPORT std::optional<LockHolder> find_lock_holder(const std::string& path,
                                                            std::uint64_t byte,
                                                            bool exclusively = true);

}  // namespace shardwise::detail
