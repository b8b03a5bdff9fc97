#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace shardwise::test {

/// The behaviour of flock() in this program, to imitate other file systems.
struct FlockBehaviour {
  std::atomic<int> error{0};  ///< if not 0, each call fails with it
  /// If true, as on NFS, where flock() is a POSIX lock: an exclusive lock needs a descriptor open
  /// for writing.
  std::atomic<bool> as_nfs{false};
};
inline FlockBehaviour flock_behaviour;

}  // namespace shardwise::test

/// Replaces the C library's flock(). Only one source of a program may include this header.
extern "C" int flock(int fd, int operation) noexcept {
  const auto& how = shardwise::test::flock_behaviour;
  if (how.error != 0) {
    errno = how.error;
    return -1;
  }
  if (how.as_nfs && (operation & LOCK_EX) != 0 && (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
    errno = EBADF;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}
