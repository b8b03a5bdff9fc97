#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace shardwise::test {

/// How flock behaves in this program, as on other file systems.
struct FlockBehaviour {
  std::atomic<int> error{0};  ///< if not 0, what each call fails with
  /// As NFS, which makes it of POSIX locks: an exclusive one wants a descriptor for writing.
  std::atomic<bool> as_nfs{false};
};
inline FlockBehaviour flock_behaviour;

}  // namespace shardwise::test

/// In place of the C library's. To be included by one source of a program.
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
