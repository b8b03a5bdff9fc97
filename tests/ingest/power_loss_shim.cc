// A library that is preloaded into a process. It records the process's operations on the files of
// one directory, so that a test can construct every state that a power loss may leave.
// power_loss_log.h describes the log.
//
// Each call is made and recorded under one lock, so the log has the actual order. The test detects
// calls that this library does not intercept, because it compares the log with the directory.

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ingest/power_loss_log.h"

#define SHARDWISE_PRELOADED extern "C" __attribute__((visibility("default")))

namespace {

using shardwise::test::Operation;
using shardwise::test::OperationHeader;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

class Lock {
 public:
  Lock() { ::pthread_mutex_lock(&mutex); }
  ~Lock() { ::pthread_mutex_unlock(&mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

std::string_view recorded_directory() {
  const char* directory = std::getenv(shardwise::test::kRecordedDirectory);
  return directory == nullptr ? "" : directory;
}

/// Returns the name in the recorded directory, or "" for a path elsewhere.
std::string_view recorded_name(std::string_view path) {
  const std::string_view directory = recorded_directory();
  if (directory.empty() || path.size() <= directory.size() || !path.starts_with(directory) ||
      path[directory.size()] != '/') {
    return {};
  }
  return path.substr(directory.size() + 1);
}

std::string path_of(int fd) {
  char link[32];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  char path[PATH_MAX];
  const ssize_t size = ::readlink(link, path, sizeof path);
  return {path, size < 0 ? 0 : static_cast<std::size_t>(size)};
}

bool is_recorded(int fd) {
  const int error = errno;
  const bool is = !recorded_name(path_of(fd)).empty();
  errno = error;
  return is;
}

std::uint64_t inode_of(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/// Appends to the log. If that fails, ends the process. REQUIRES: the lock is held.
void record(Operation operation, std::uint64_t inode, std::uint64_t offset, std::string_view data,
            std::string_view name = {}, std::string_view other_name = {}) {
  const int error = errno;
  static const int log =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, std::getenv(shardwise::test::kOperationLog),
                                 O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  const OperationHeader header{operation,
                               static_cast<std::uint32_t>(name.size()),
                               static_cast<std::uint32_t>(other_name.size()),
                               static_cast<std::uint32_t>(data.size()),
                               inode,
                               offset};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(name).append(other_name).append(data);
  if (::syscall(SYS_write, log, bytes.data(), bytes.size()) != static_cast<long>(bytes.size())) {
    std::abort();
  }
  errno = error;
}

int open_and_record(int directory, const char* path, int flags, mode_t mode) {
  const std::string_view name = recorded_name(path);
  if (name.empty()) return static_cast<int>(::syscall(SYS_openat, directory, path, flags, mode));
  const Lock lock;
  struct stat before {};
  const bool existed = ::lstat(path, &before) == 0;
  const int fd = static_cast<int>(::syscall(SYS_openat, directory, path, flags, mode));
  if (fd >= 0 && !existed) record(Operation::kCreate, inode_of(fd), 0, {}, name);
  if (fd >= 0 && existed && (flags & O_TRUNC) != 0) {
    record(Operation::kResize, inode_of(fd), 0, {});
  }
  return fd;
}

mode_t mode_argument(int flags, va_list arguments) {
  const bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return creates ? va_arg(arguments, mode_t) : 0;
}

/// Makes a call that writes at `offset`, and records the part of `data` that was written.
template <class Call>
ssize_t write_and_record(int fd, const void* data, off_t offset, Call call) {
  const ssize_t written = call();
  if (written > 0) {
    record(Operation::kWrite, inode_of(fd), static_cast<std::uint64_t>(offset),
           {static_cast<const char*>(data), static_cast<std::size_t>(written)});
  }
  return written;
}

ssize_t write_at_and_record(int fd, const void* data, size_t size, off_t offset) {
  const auto call = [&] { return ::syscall(SYS_pwrite64, fd, data, size, offset); };
  if (!is_recorded(fd)) return call();
  const Lock lock;
  return write_and_record(fd, data, offset, call);
}

int resize_and_record(int fd, off_t size) {
  const auto call = [&] { return static_cast<int>(::syscall(SYS_ftruncate, fd, size)); };
  if (!is_recorded(fd)) return call();
  const Lock lock;
  const int result = call();
  if (result == 0) {
    record(Operation::kResize, inode_of(fd), static_cast<std::uint64_t>(size), {});
  }
  return result;
}

int sync_and_record(long number, int fd) {
  const auto call = [&] { return static_cast<int>(::syscall(number, fd)); };
  const bool is_directory = path_of(fd) == recorded_directory();
  if (!is_directory && !is_recorded(fd)) return call();
  const Lock lock;
  const int result = call();
  if (result == 0) {
    record(is_directory ? Operation::kSyncDirectory : Operation::kSyncFile, inode_of(fd), 0, {});
  }
  return result;
}

}  // namespace

SHARDWISE_PRELOADED int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_and_record(AT_FDCWD, path, flags, mode);
}

SHARDWISE_PRELOADED int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_and_record(AT_FDCWD, path, flags, mode);
}

SHARDWISE_PRELOADED int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_and_record(directory, path, flags, mode);
}

SHARDWISE_PRELOADED int creat(const char* path, mode_t mode) {
  return open_and_record(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

SHARDWISE_PRELOADED ssize_t write(int fd, const void* data, size_t size) {
  const auto call = [&] { return ::syscall(SYS_write, fd, data, size); };
  if (!is_recorded(fd)) return call();
  const Lock lock;
  return write_and_record(fd, data, ::lseek(fd, 0, SEEK_CUR), call);
}

SHARDWISE_PRELOADED ssize_t writev(int fd, const iovec* parts, int num_parts) {
  if (!is_recorded(fd)) return ::syscall(SYS_writev, fd, parts, num_parts);
  std::string data;
  for (int i = 0; i < num_parts; ++i) {
    data.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  }
  return write(fd, data.data(), data.size());
}

SHARDWISE_PRELOADED ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return write_at_and_record(fd, data, size, offset);
}

SHARDWISE_PRELOADED ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  return write_at_and_record(fd, data, size, offset);
}

SHARDWISE_PRELOADED int ftruncate(int fd, off_t size) noexcept {
  return resize_and_record(fd, size);
}

SHARDWISE_PRELOADED int ftruncate64(int fd, off64_t size) noexcept {
  return resize_and_record(fd, size);
}

SHARDWISE_PRELOADED int fsync(int fd) { return sync_and_record(SYS_fsync, fd); }

SHARDWISE_PRELOADED int fdatasync(int fd) { return sync_and_record(SYS_fdatasync, fd); }

SHARDWISE_PRELOADED int rename(const char* from, const char* to) noexcept {
  const auto call = [&] {
    return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
  };
  const std::string_view old_name = recorded_name(from);
  const std::string_view new_name = recorded_name(to);
  if (old_name.empty() && new_name.empty()) return call();
  const Lock lock;
  const int result = call();
  if (result == 0) record(Operation::kRename, 0, 0, {}, old_name, new_name);
  return result;
}

SHARDWISE_PRELOADED int unlink(const char* path) noexcept {
  const auto call = [&] { return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0)); };
  const std::string_view name = recorded_name(path);
  if (name.empty()) return call();
  const Lock lock;
  const int result = call();
  if (result == 0) record(Operation::kUnlink, 0, 0, {}, name);
  return result;
}
