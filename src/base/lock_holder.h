#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/base/export.h"

// Which processes hold locks on bytes of a file. The kernel tells nobody who holds a lock of an
// open file description (its pid is -1), but each process' /proc/PID/fdinfo lists the locks of its
// files.

namespace shardwise::detail {

/// Processes that have files of a folder open, by the files' names. As LockHolders::of_file().
SHARDWISE_EXPORT std::multimap<std::string, std::int64_t> processes_with_files_in(
    const std::string& folder);

class SHARDWISE_EXPORT LockHolders {
 public:
  /// As it is now. Processes of other users are not seen, unless this one is privileged, nor those
  /// of other containers. Never throws for what cannot be read.
  /// Cost: looks at every open file of every process: some ms on a small machine.
  static LockHolders of_file(const std::string& path);

  /// Those that lock the byte, ascending, each once.
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
  std::string program;      ///< as the system calls it, at most 15 bytes
  bool is_stopped = false;  ///< by a signal, or a debugger

  /// "process 17 (python3)", and whether it is stopped.
  SHARDWISE_EXPORT std::string text() const;
};

/// The process that holds the lock on a byte of a file, as File::try_lock_byte() takes it: the
/// exclusive one, or a shared one. Nothing if none does, or this process cannot see the one: it
/// belongs to another user, or runs in another container.
/// Cost: as LockHolders::of_file().
SHARDWISE_EXPORT std::optional<LockHolder> find_lock_holder(const std::string& path,
                                                            std::uint64_t byte,
                                                            bool exclusively = true);

}  // namespace shardwise::detail
