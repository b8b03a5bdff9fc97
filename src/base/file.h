#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Identifies one version of a file: device, inode, size and time.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;  ///< since the Unix epoch

  friend auto operator<=>(const FileIdentity&, const FileIdentity&) = default;
};

/// Returns the identity of the regular file at `path`; follows links.
/// Errors: NotFound, kIo; InvalidArgument if it is not a regular file.
SHARDWISE_EXPORT FileIdentity file_identity(const std::string& path);
/// Reads the identity from an open descriptor; `path` is for the error text.
SHARDWISE_EXPORT FileIdentity file_identity(int fd, const std::string& path);

/// The outcome of an attempt to lock a file.
enum class FileLock : std::uint8_t {
  kTaken,
  kHeldByAnother,
  kUnsupported,  ///< the file system has no such locks, so no process is excluded
};

/// An open file descriptor, closed on destruction. All calls retry on EINTR, and throw other
/// failures as throw_errno() does.
///
/// Threads: one, or positional calls from several.
/// Processes: a lock belongs to the open file description, which parent and child share after
///   fork(). A forked child therefore starts with every file closed on which a lock was requested:
///   fd() is -1, and calls fail with EBADF. The child neither keeps the parent's locks nor frees
///   them.
/// Signals: a write beyond RLIMIT_FSIZE raises SIGXFSZ, which by default ends the process. If the
///   program ignores or handles it, the write throws kNoSpace (EFBIG). The library leaves signal
///   handling to the program; the command line ignores SIGXFSZ.
class SHARDWISE_EXPORT File {
 public:
  File() = default;
  /// Opens for reading, close-on-exec. Refuses anything but a regular file.
  [[nodiscard]] static File open_read(const std::string& path);
  /// Opens a file in order to lock it, and writes nothing. It opens for writing if that is
  /// permitted, since NFS demands it for exclusive locks; otherwise as open_read().
  [[nodiscard]] static File open_to_lock(const std::string& path);
  /// Opens for reading and writing; creates the file if it does not exist. Does not follow a link.
  /// @param mode  permissions of a created file, less the umask.
  [[nodiscard]] static File open_or_create(const std::string& path, unsigned mode = 0666);
  /// Creates a new file for reading and writing; it must not exist.
  [[nodiscard]] static File create_exclusive(const std::string& path, unsigned mode = 0666);
  /// Creates a file without a name, for reading and writing, in the directory of `beside`. It
  /// vanishes with its last descriptor and mapping, however the process ends. If the file system
  /// has no nameless files, it briefly has a name that is_temporary_name() recognises.
  [[nodiscard]] static File create_nameless(const std::string& beside);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  int fd() const noexcept { return fd_; }
  const std::string& path() const noexcept { return path_; }

  /// Reads up to `size` bytes at `offset`; fewer only at the end of the file.
  std::size_t read_at(std::uint64_t offset, char* buffer, std::size_t size) const;
  /// Writes all of `bytes` at the current position.
  void write(std::string_view bytes);
  /// Writes all of `bytes` at `offset`; does not move the position.
  void write_at(std::uint64_t offset, std::string_view bytes);
  /// Renames the file, and replaces a file that has the new name.
  void rename(const std::string& path);
  /// Sets the file's length: truncates it, or appends a hole.
  void resize(std::uint64_t size_bytes);
  /// Flushes content and size to the device.
  void sync();
  /// Takes an exclusive flock without waiting. The kernel frees it when the file is closed, however
  /// the process ends.
  [[nodiscard]] FileLock try_lock();
  /// Takes a lock on the byte at `offset` without waiting, shared or exclusive. It replaces this
  /// descriptor's previous lock on the byte. Returns false if another open file's lock excludes it.
  /// The byte may lie beyond the end of the file.
  /// Two threads exclude each other if each opens the file. The kernel frees the locks when the
  /// process ends (Linux "open file description" locks).
  [[nodiscard]] bool try_lock_byte(std::uint64_t offset, bool exclusive);
  void unlock_byte(std::uint64_t offset) noexcept;
  /// True if another open file holds a lock on the byte. Takes no lock, and works on a file opened
  /// for reading.
  [[nodiscard]] bool is_byte_locked(std::uint64_t offset) const;
  /// True if that lock is a shared one.
  [[nodiscard]] bool is_byte_shared(std::uint64_t offset) const;
  /// Allocates `size_bytes` on the device and sets the file's length, so that later writes cannot
  /// run out of space. If the file system cannot allocate, it only sets the length.
  void reserve(std::uint64_t size_bytes);
  /// False if the file was unlinked after it was opened.
  bool has_name() const;
  void close() noexcept;

 private:
  struct Locked;
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  /// Makes every forked child find this file closed.
  void stay_with_process();
  void take_over(File& other) noexcept;
  /// Returns the type of another open file's lock on the byte: F_UNLCK, F_RDLCK or F_WRLCK.
  int lock_on_byte(std::uint64_t offset) const;

  int fd_ = -1;
  bool stays_with_process_ = false;
  std::string path_;
};

/// A file that appears under its name whole or not at all.
///
/// Bytes go to `<path>.<random>.tmp` in the same directory, locked while it is written. commit()
/// syncs it, renames it over `path`, and syncs the directory. If the writer is destroyed without
/// commit(), or killed, the old file stays unchanged. sweep_temporaries() removes the files of
/// killed writers. Without flock, the file of a living writer looks like that of a killed one:
/// nothing is swept, and files of killed writers stay.
/// Threads: one.
/// Processes: a forked child's copy does nothing.
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
  /// Renames the temporary file to `name`. It keeps that name if it is not committed, and keeps its
  /// lock.
  void keep_as(const std::string& name);
  /// Afterwards the file keeps its lock until this object is destroyed.
  void commit();

 private:
  std::string path_;
  File file_;
  bool stays_ = false;  // set by keep_as(): do not remove the file
  bool committed_ = false;
};

/// True if `name` is a temporary file's name for the file `base`; both without a directory.
SHARDWISE_EXPORT bool is_temporary_name(std::string_view name, std::string_view base) noexcept;

/// Removes the temporary file `path` unless a living writer holds it. Returns true if the file is
/// gone. Never throws.
SHARDWISE_EXPORT bool sweep_temporary(const std::string& path) noexcept;

/// Removes the `<path>.*.tmp` files that no living writer holds. Never throws; files that it cannot
/// remove stay for the next call.
SHARDWISE_EXPORT void sweep_temporaries(const std::string& path) noexcept;

/// Makes the entries of the directory of `path` durable.
SHARDWISE_EXPORT void sync_directory_of(const std::string& path);

/// Calls at_home(). Returns the final target of `path` if it is a symbolic link, and `path` itself
/// otherwise, even if it does not exist. Links among the directories of the path are not resolved.
/// Errors: kIo for a loop of links.
SHARDWISE_EXPORT std::string behind_links(std::string path);

/// Returns the directory part of `path`; "." if it has no slash.
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
