#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace shardwise::test {

/// Controls flock() in this program, so that a test can imitate other file systems.
struct FlockBehaviour {
  std::atomic<int> error{0};  ///< if not 0, each call fails with this error
  /// If true, flock() behaves as on NFS, where it is a POSIX lock: an exclusive lock requires a
  /// descriptor that is open for writing.
  std::atomic<bool> as_nfs{false};
};
inline FlockBehaviour flock_behaviour;

}  // namespace shardwise::test

/// Replaces the C library's flock(). Only one source file of a program may include this header.
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
