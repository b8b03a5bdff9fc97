#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "base/assert.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/fork.h"
#include "base/normal_path.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::size_t kRandomLength = 12;

/// Repeats `call` as long as a signal interrupts it.
template <class Call>
auto retry_eintr(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

FileIdentity checked_identity(const struct stat& st, const std::string& path) {
  if (!S_ISREG(st.st_mode)) {
    throw InvalidArgument(S_ISDIR(st.st_mode) ? "the path is a directory, not a file"
                                              : "the path is not a regular file",
                          in_quotes(path), "give the path of a file");
  }
  return {.device = st.st_dev,
          .inode = st.st_ino,
          .size_bytes = static_cast<std::uint64_t>(st.st_size),
          .mtime_ns = st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec};
}

/// True if a lock failed because the file system has no locks.
bool has_no_locks(int errno_value) noexcept {
  return errno_value == ENOLCK || errno_value == EOPNOTSUPP || errno_value == ENOSYS;
}

/// @param count  number of bytes; 0 means up to the end of the file.
void unlock_bytes(int fd, std::uint64_t offset, std::uint64_t count) noexcept {
  struct flock range {};
  range.l_type = F_UNLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(offset);
  range.l_len = static_cast<off_t>(count);
  retry_eintr([&] { return ::fcntl(fd, F_OFD_SETLK, &range); });
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

FileIdentity file_identity(const std::string& path) {
  struct stat st {};
  if (retry_eintr([&] { return ::stat(c_path(path), &st); }) != 0) {
    throw_errno(errno, "cannot access", path);
  }
  return checked_identity(st, path);
}

FileIdentity file_identity(int fd, const std::string& path) {
  struct stat st {};
  if (retry_eintr([&] { return ::fstat(fd, &st); }) != 0) throw_errno(errno, "cannot access", path);
  return checked_identity(st, path);
}

File File::open_read(const std::string& path) {
  // With O_NONBLOCK, open() does not wait for the writer of a FIFO. The check below refuses the
  // FIFO.
  const int fd =
      retry_eintr([&] { return ::open(c_path(path), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) throw_errno(errno, "cannot open", path);
  File file(fd, path);
  file_identity(fd, path);
  return file;
}

File File::open_to_lock(const std::string& path) {
  const int fd = retry_eintr([&] { return ::open(c_path(path), O_RDWR | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) return open_read(path);
  File file(fd, path);
  file_identity(fd, path);
  return file;
}

File File::open_or_create(const std::string& path, unsigned mode) {
  const int fd = retry_eintr([&] {
    return ::open(c_path(path), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
  });
  if (fd < 0) throw_errno(errno, "cannot open or create", path);
  File file(fd, path);
  file_identity(fd, path);
  return file;
}

File File::create_exclusive(const std::string& path, unsigned mode) {
  const int fd = retry_eintr([&] {
    return ::open(c_path(path), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  });
  if (fd < 0 && errno == ENOENT) {
    throw NotFound("cannot create", in_quotes(path) + " (the folder does not exist)",
                   "make the folder first, or choose another path");
  }
  if (fd < 0) throw_errno(errno, "cannot create", path);
  return File(fd, path);
}

File File::create_nameless(const std::string& beside) {
  const std::string directory = directory_of(beside);
  const int fd = retry_eintr(
      [&] { return ::open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600); });
  if (fd >= 0) return File(fd, beside + " (its temporary file)");
  File file = create_exclusive(temporary_name(beside));
  ::unlink(file.path().c_str());
  return file;
}

/// The files that must be closed in a forked child.
struct File::Locked {
  /// Never destroyed, because static objects may close their files after main() has returned.
  static Locked& all() {
    static Locked& locked = *new Locked;
    return locked;
  }
  /// Runs in a forked child, on its only thread, before any other code (see call_in_children()). It
  /// therefore needs no lock.
  static void close_all() noexcept SHARDWISE_NO_THREAD_SAFETY_ANALYSIS {
    for (File* const file : all().files) {
      ::close(std::exchange(file->fd_, -1));
      file->stays_with_process_ = false;
    }
    all().files.clear();
  }

  Mutex mutex;
  std::set<File*> files SHARDWISE_GUARDED_BY(mutex);
  const bool told = call_in_children(close_all);
};

void File::stay_with_process() {
  if (stays_with_process_) return;
  const ForkSection section;
  Locked& locked = Locked::all();
  const Lock lock(locked.mutex);
  locked.files.insert(this);
  stays_with_process_ = true;
}

File::~File() { close(); }
File::File(File&& other) noexcept { take_over(other); }
File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    close();
    take_over(other);
  }
  return *this;
}

/// REQUIRES: this file is closed.
void File::take_over(File& other) noexcept {
  SHARDWISE_ASSERT(fd_ < 0);
  const auto take = [&] {
    fd_ = std::exchange(other.fd_, -1);
    stays_with_process_ = std::exchange(other.stays_with_process_, false);
    path_ = std::move(other.path_);
  };
  if (!other.stays_with_process_) return take();
  Locked& locked = Locked::all();
  const Lock lock(locked.mutex);
  auto node = locked.files.extract(&other);
  node.value() = this;
  locked.files.insert(std::move(node));
  take();
}

std::size_t File::read_at(std::uint64_t offset, char* buffer, std::size_t size) const {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = retry_eintr([&] {
      return ::pread(fd_, buffer + done, size - done, static_cast<off_t>(offset + done));
    });
    if (n < 0) throw_errno(errno, "cannot read", path_);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void File::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = retry_eintr([&] { return ::write(fd_, bytes.data(), bytes.size()); });
    if (n < 0) throw_errno(errno, "cannot write", path_);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void File::write_at(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = retry_eintr(
        [&] { return ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (n < 0) throw_errno(errno, "cannot write", path_);
    bytes.remove_prefix(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void File::write_back(std::uint64_t offset, std::uint64_t size) noexcept {
  ::sync_file_range(
      fd_, static_cast<off64_t>(offset), static_cast<off64_t>(size),
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

void File::sync() {
  if (retry_eintr([&] { return ::fsync(fd_); }) != 0) throw_errno(errno, "cannot sync", path_);
}

FileLock File::try_lock() {
  stay_with_process();
  if (retry_eintr([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) == 0) return FileLock::kTaken;
  if (errno == EWOULDBLOCK) return FileLock::kHeldByAnother;
  // NFS returns EBADF for a file that is not open for writing.
  if (has_no_locks(errno) || (errno == EBADF && fd_ >= 0)) return FileLock::kUnsupported;
  throw_errno(errno, "cannot lock", path_);
}

void File::rename(const std::string& path) {
  if (::rename(c_path(path_), c_path(path)) != 0) throw_errno(errno, "cannot replace", path);
  path_ = path;
}

void File::resize(std::uint64_t size_bytes) {
  if (retry_eintr([&] { return ::ftruncate(fd_, static_cast<off_t>(size_bytes)); }) != 0) {
    throw_errno(errno, "cannot resize", path_);
  }
}

bool File::try_lock_byte(std::uint64_t offset, bool exclusive) {
  stay_with_process();
  struct flock range {};
  range.l_type = exclusive ? F_WRLCK : F_RDLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(offset);
  range.l_len = 1;
  if (retry_eintr([&] { return ::fcntl(fd_, F_OFD_SETLK, &range); }) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  if (has_no_locks(errno)) {
    throw Error(ErrorCode::kIo, "the file system has no locks",
                in_quotes(path_) + " (" + std::generic_category().message(errno) + ")",
                "choose a place on a local disk");
  }
  throw_errno(errno, "cannot lock", path_);
}

int File::lock_on_byte(std::uint64_t offset) const {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(offset);
  range.l_len = 1;
  if (retry_eintr([&] { return ::fcntl(fd_, F_OFD_GETLK, &range); }) != 0) {
    throw_errno(errno, "cannot query the locks", path_);
  }
  return range.l_type;
}

bool File::is_byte_locked(std::uint64_t offset) const { return lock_on_byte(offset) != F_UNLCK; }

bool File::is_byte_shared(std::uint64_t offset) const { return lock_on_byte(offset) == F_RDLCK; }

void File::unlock_byte(std::uint64_t offset) noexcept { unlock_bytes(fd_, offset, 1); }

void File::reserve(std::uint64_t size_bytes) {
  if (size_bytes == 0) return resize(0);
  if (retry_eintr([&] { return ::fallocate(fd_, 0, 0, static_cast<off_t>(size_bytes)); }) == 0) {
    return;
  }
  if (errno != EOPNOTSUPP && errno != ENOSYS) throw_errno(errno, "cannot reserve space", path_);
  resize(size_bytes);
}

bool File::has_name() const {
  struct stat st {};
  if (retry_eintr([&] { return ::fstat(fd_, &st); }) != 0)
    throw_errno(errno, "cannot access", path_);
  return st.st_nlink != 0;
}

bool File::has_path() const {
  struct stat named {};
  struct stat open {};
  if (retry_eintr([&] { return ::fstat(fd_, &open); }) != 0)
    throw_errno(errno, "cannot access", path_);
  return retry_eintr([&] { return ::stat(c_path(path_), &named); }) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

void File::close() noexcept {
  if (fd_ < 0) return;
  if (stays_with_process_) {
    // A child that was forked meanwhile, or without fork's handlers, may keep the descriptor open,
    // and with it the locks. Unlocking frees them in the child, too.
    ::flock(fd_, LOCK_UN);
    unlock_bytes(fd_, 0, 0);
    Locked& locked = Locked::all();
    const Lock lock(locked.mutex);
    locked.files.erase(this);
    stays_with_process_ = false;
  }
  ::close(std::exchange(fd_, -1));
}

namespace {

/// Refuses a device such as /dev/null, because the new file would replace it for all programs.
void require_no_device(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return;
  throw InvalidArgument("cannot replace", in_quotes(path) + " (a device, a pipe or a socket)",
                        "name a file");
}

}  // namespace

AtomicFile::AtomicFile(std::string path, unsigned mode) : path_(std::move(path)) {
  require_no_device(path_);
  // Between creation and lock, another process may sweep the file because it looks abandoned. The
  // loop then creates another file.
  do {
    file_ = File::create_exclusive(temporary_name(path_), mode);
  } while (file_.try_lock() == FileLock::kHeldByAnother || !file_.has_name());
}

void AtomicFile::keep_as(const std::string& name) {
  file_.rename(name);
  stays_ = true;
}

AtomicFile::~AtomicFile() {
  const bool belongs_here =
      file_.fd() >= 0;  // in a forked child the file is closed, because it belongs to the parent
  if (!committed_ && !stays_ && belongs_here) ::unlink(file_.path().c_str());
}

void AtomicFile::commit() {
  SHARDWISE_FAULT_POINT("atomic_file.before_sync");
  file_.sync();
  SHARDWISE_FAULT_POINT("atomic_file.before_rename");
  file_.rename(path_);
  committed_ = true;
  SHARDWISE_FAULT_POINT("atomic_file.after_rename");
  sync_directory_of(path_);
}

bool is_temporary_name(std::string_view name, std::string_view base) noexcept {
  return name.size() == base.size() + 1 + kRandomLength + kTemporarySuffix.size() &&
         name.starts_with(base) && name[base.size()] == '.' && name.ends_with(kTemporarySuffix) &&
         is_hex(name.substr(base.size() + 1, kRandomLength));
}

bool sweep_temporary(const std::string& path) noexcept {
  try {
    File file = File::open_to_lock(path);
    return file.try_lock() == FileLock::kTaken && ::unlink(path.c_str()) == 0;
  } catch (const NotFound&) {
    return true;  // another process has already removed it
  } catch (const std::exception&) {
    return false;
  }
}

void sweep_temporaries(const std::string& path) noexcept {
  try {
    const std::string directory = directory_of(path);
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory.c_str()), ::closedir);
    if (!entries) return;
    while (const dirent* entry = ::readdir(entries.get())) {
      if (!is_temporary_name(entry->d_name, base_name(path))) continue;
      sweep_temporary(directory + "/" + entry->d_name);
    }
  } catch (const std::exception&) {
    // Sweeping is optional; the next writer tries again.
  }
}

void sync_directory_of(const std::string& path) {
  const std::string directory = directory_of(path);
  const int fd =
      retry_eintr([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) throw_errno(errno, "cannot open the directory", directory);
  const int result = retry_eintr([&] { return ::fsync(fd); });
  const int error = errno;
  ::close(fd);
  // Some network file systems cannot sync a directory, and return EINVAL.
  if (result != 0 && error != EINVAL) throw_errno(error, "cannot sync the directory", directory);
}

std::string behind_links(std::string path) {
  path = at_home(std::move(path));
  constexpr int kMaxLinks = 40;  // the kernel's limit
  for (int i = 0; i < kMaxLinks; ++i) {
    std::string target(PATH_MAX, '\0');
    const ssize_t size = ::readlink(c_path(path), target.data(), target.size());
    if (size < 0) {
      if (errno == EINVAL || errno == ENOENT || errno == ENOTDIR) return path;
      throw_errno(errno, "cannot access", path);
    }
    target.resize(static_cast<std::size_t>(size));
    if (!target.starts_with('/')) target.insert(0, directory_of(path) + "/");
    path = std::move(target);
  }
  throw_errno(ELOOP, "cannot follow the link", path);
}

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string temporary_name(const std::string& path) {
  return path + "." + random_name(kRandomLength) + std::string(kTemporarySuffix);
}

std::string random_name(std::size_t length) {
  std::string bytes((length + 1) / 2, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw_errno(errno, "cannot get random bytes", "getrandom()");
  }
  std::string name = hex(bytes);
  name.resize(length);
  return name;
}

}  // namespace shardwise::detail
