#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Identifies one version of a file by device, inode, size and time.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;  ///< since the Unix epoch

  friend auto operator<=>(const FileIdentity&, const FileIdentity&) = default;
};

/// Returns the identity of the regular file at `path`, or at the target of a link.
/// Errors: NotFound, kIo; InvalidArgument if it is not a regular file.
SHARDWISE_EXPORT FileIdentity file_identity(const std::string& path);
/// Reads the identity from an open descriptor; `path` is for the error text.
SHARDWISE_EXPORT FileIdentity file_identity(int fd, const std::string& path);

/// The outcome of an attempt to lock a file.
enum class FileLock : std::uint8_t {
  kTaken,
  kHeldByAnother,
  kUnsupported,  ///< the file system does not support such locks, so no process is excluded
};

/// An open file descriptor, closed on destruction. All calls retry on EINTR, and throw other
/// failures by throw_errno().
///
/// Threads: one thread. Several threads may call read_at() and write_at().
/// Processes: a lock belongs to the open file description, which parent and child share after
///   fork(). In a forked child, every file on which a lock was requested is therefore closed: fd()
///   is -1, and calls fail with EBADF. The child neither keeps the parent's locks nor frees them.
/// Signals: a write beyond RLIMIT_FSIZE raises SIGXFSZ, which by default ends the process. If the
///   program ignores or handles SIGXFSZ, the write throws kNoSpace (EFBIG). The library does not
///   change the signal's handling. The command line ignores SIGXFSZ.
class SHARDWISE_EXPORT File {
 public:
  File() = default;
  /// Opens a regular file for reading, with close-on-exec. Any other kind of file is an error.
  [[nodiscard]] static File open_read(const std::string& path);
  /// Opens a file in order to lock it. It opens the file for writing if permitted, because NFS
  /// requires this for exclusive locks. Otherwise it opens the file like open_read().
  [[nodiscard]] static File open_to_lock(const std::string& path);
  /// Opens the file for reading and writing, and creates it if it does not exist. It does not
  /// follow a link.
  /// @param mode  permissions of a created file, less the umask.
  [[nodiscard]] static File open_or_create(const std::string& path, unsigned mode = 0666);
  /// Creates a new file for reading and writing; it must not exist.
  [[nodiscard]] static File create_exclusive(const std::string& path, unsigned mode = 0666);
  /// Creates a file without a name, for reading and writing, in the directory of `beside`. The
  /// kernel removes it with its last descriptor and mapping, however the process ends. If the file
  /// system does not support nameless files, the file briefly has a name that is_temporary_name()
  /// recognises.
  [[nodiscard]] static File create_nameless(const std::string& beside);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  int fd() const noexcept { return fd_; }
  const std::string& path() const noexcept { return path_; }

  /// Reads `size` bytes at `offset`, and fewer only at the end of the file. Returns the number of
  /// bytes.
  std::size_t read_at(std::uint64_t offset, char* buffer, std::size_t size) const;
  /// Writes all of `bytes` at the current position.
  void write(std::string_view bytes);
  /// Writes all of `bytes` at `offset`. It does not move the current position.
  void write_at(std::uint64_t offset, std::string_view bytes);
  /// Renames the file. A file that has the new name is replaced.
  void rename(const std::string& path);
  /// Sets the file's length: truncates it, or appends a hole.
  void resize(std::uint64_t size_bytes);
  /// Flushes content and size to the device.
  void sync();
  /// Waits until these bytes are on the disk, as far as the system supports it, so that a later
  /// sync() of a large file is short. It does not make them durable.
  void write_back(std::uint64_t offset, std::uint64_t size) noexcept;
  /// Takes an exclusive flock(2) without waiting. The kernel frees the lock when the file is
  /// closed, however the process ends.
  [[nodiscard]] FileLock try_lock();
  /// Takes a lock on the byte at `offset` without waiting, shared or exclusive. It replaces this
  /// descriptor's previous lock on the byte. Returns false if the lock of another open file
  /// conflicts with it. The byte may be beyond the end of the file. Two threads exclude each other
  /// if each opens the file. The kernel frees the locks when the process ends (Linux "open file
  /// description" locks).
  [[nodiscard]] bool try_lock_byte(std::uint64_t offset, bool exclusive);
  void unlock_byte(std::uint64_t offset) noexcept;
  /// True if another open file has a lock on the byte. The call takes no lock, and works on a file
  /// that is opened for reading.
  [[nodiscard]] bool is_byte_locked(std::uint64_t offset) const;
  /// True if another open file has a shared lock on the byte.
  [[nodiscard]] bool is_byte_shared(std::uint64_t offset) const;
  /// Allocates `size_bytes` on the device and sets the file's length, so that later writes cannot
  /// run out of space. If the file system does not support this, it only sets the length.
  void reserve(std::uint64_t size_bytes);
  /// False if the file was unlinked after it was opened.
  bool has_name() const;
  /// False if its path now names another file, or none.
  bool has_path() const;
  void close() noexcept;

 private:
  struct Locked;
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  /// Ensures that this file is closed in every forked child.
  void stay_with_process();
  void take_over(File& other) noexcept;
  /// Returns the type of another open file's lock on the byte: F_UNLCK, F_RDLCK or F_WRLCK.
  int lock_on_byte(std::uint64_t offset) const;

  int fd_ = -1;
  bool stays_with_process_ = false;
  std::string path_;
};

/// A file that appears under its name complete or not at all.
///
/// Bytes are written to a temporary file, `<path>.<random>.tmp`, which is locked meanwhile.
/// commit() syncs this file, renames it to `path`, and syncs the directory. If the writer is
/// destroyed without commit(), or killed, the old file is unchanged. sweep_temporaries() removes
/// the temporary files of killed writers. On a file system without flock, it cannot distinguish
/// them from the files of running writers, so it removes none.
/// Threads: one.
/// Processes: in a forked child the object does nothing.
class SHARDWISE_EXPORT AtomicFile {
 public:
  /// Errors: InvalidArgument if `path` names a device, a pipe or a socket; kIo.
  /// @param mode  see File::create_exclusive().
  explicit AtomicFile(std::string path, unsigned mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  File& file() noexcept { return file_; }
  /// Valid until commit().
  const std::string& temporary_path() const noexcept { return file_.path(); }
  /// Sets the name that commit() will use, which may depend on the content.
  void set_path(std::string path) { path_ = std::move(path); }
  /// Renames the temporary file to `name`. The file remains locked. If it is not committed, it
  /// remains under that name.
  void keep_as(const std::string& name);
  /// The file remains locked until this object is destroyed.
  void commit();

 private:
  std::string path_;
  File file_;
  bool stays_ = false;  // set by keep_as(): do not remove the file
  bool committed_ = false;
};

/// True if `name` is the name of a temporary file for the file `base`. Both are without a
/// directory.
SHARDWISE_EXPORT bool is_temporary_name(std::string_view name, std::string_view base) noexcept;

/// Removes the temporary file `path` unless a running writer has it locked. Returns true if the
/// file no longer exists. Never throws.
SHARDWISE_EXPORT bool sweep_temporary(const std::string& path) noexcept;

/// Removes the `<path>.*.tmp` files that no running writer has locked. Never throws. If a file
/// cannot be removed, a later call tries again.
SHARDWISE_EXPORT void sweep_temporaries(const std::string& path) noexcept;

/// Makes the entries of the directory of `path` durable.
SHARDWISE_EXPORT void sync_directory_of(const std::string& path);

/// Replaces a leading "~" by at_home(). Then returns the final target of `path` if it is a symbolic
/// link, otherwise `path` itself, even if no such file exists. Links among the directories of the
/// path are not resolved.
/// Errors: kIo for a loop of links.
SHARDWISE_EXPORT std::string behind_links(std::string path);

/// Returns the directory part of `path`, or "." if it has no slash.
SHARDWISE_EXPORT std::string directory_of(const std::string& path);

/// Returns a name in the directory of `path` for a file that is renamed to `path` when it is
/// complete. sweep_temporaries() recognises it.
SHARDWISE_EXPORT std::string temporary_name(const std::string& path);

/// Returns `length` random characters of [0-9a-f], from the kernel.
SHARDWISE_EXPORT std::string random_name(std::size_t length);

}  // namespace shardwise::detail

namespace shardwise {
using detail::AtomicFile;
using detail::behind_links;
using detail::directory_of;
using detail::File;
using detail::file_identity;
using detail::FileIdentity;
using detail::FileLock;
using detail::is_temporary_name;
using detail::random_name;
using detail::sweep_temporaries;
using detail::sweep_temporary;
using detail::sync_directory_of;
using detail::temporary_name;
}  // namespace shardwise
