#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// A process that holds a lock.
struct LockHolder {
  int process = 0;
  std::string program;      ///< as the system calls it, at most 15 bytes
  bool is_stopped = false;  ///< by a signal, or a debugger

  /// "process 17 (python3)", and whether it is stopped.
  SHARDWISE_EXPORT std::string text() const;
};

/// The process that holds the exclusive lock on a byte of a file, as File::try_lock_byte() takes
/// it. Nothing if none does, or this process cannot see the one: it belongs to another user, or
/// runs in another container.
/// Cost: reads what /proc says of all descriptors of this user's processes, some ms.
SHARDWISE_EXPORT std::optional<LockHolder> find_lock_holder(const std::string& path,
                                                            std::uint64_t byte);

}  // namespace shardwise::detail
