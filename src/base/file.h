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

/// The identity of the regular file at `path`, links followed.
/// Errors: NotFound, kIo; InvalidArgument if it is not a regular file.
SHARDWISE_EXPORT FileIdentity file_identity(const std::string& path);
/// Reads the identity from an open descriptor; `path` is for the error text.
SHARDWISE_EXPORT FileIdentity file_identity(int fd, const std::string& path);

/// The outcome of trying to take a lock.
enum class FileLock : std::uint8_t {
  kTaken,
  kHeldByAnother,
  kUnsupported,  ///< the file system has no such locks, so no process is kept out
};

/// An open file descriptor, closed on destruction. One thread, or positional calls from several.
/// All calls retry on EINTR and throw what throw_errno makes of other failures.
///
/// Processes: a lock belongs to what was opened, which parent and child would share after fork().
/// So a forked child starts with every file closed on which a lock was asked for (fd() is -1, and
/// calls fail with EBADF), and neither keeps the parent's locks nor frees them.
/// Signals: a write beyond RLIMIT_FSIZE raises SIGXFSZ, which ends a process that does not ignore
/// or handle it; where it does, the write throws kNoSpace (EFBIG). The library leaves what signals
/// do to the program; the command line ignores this one.
class SHARDWISE_EXPORT File {
 public:
  File() = default;
  /// Opens for reading, close-on-exec. Refuses what is not a regular file.
  [[nodiscard]] static File open_read(const std::string& path);
  /// Opens a file in order to lock it: for writing if that is permitted, since NFS demands it for
  /// exclusive locks; otherwise as open_read(). Nothing is written.
  [[nodiscard]] static File open_to_lock(const std::string& path);
  /// Opens for reading and writing, and creates the file if there is none. Follows no link.
  /// @param mode  of a file that is created, less the umask.
  [[nodiscard]] static File open_or_create(const std::string& path, unsigned mode = 0666);
  /// Creates a new file for reading and writing; it must not exist.
  [[nodiscard]] static File create_exclusive(const std::string& path, unsigned mode = 0666);
  /// Creates a file without a name, for reading and writing, in the directory that holds `beside`.
  /// It vanishes with its last descriptor and mapping, however the process ends. Where the file
  /// system has no nameless files, it has a name for a moment, one that is_temporary_name() knows.
  [[nodiscard]] static File create_nameless(const std::string& beside);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  int fd() const noexcept { return fd_; }
  const std::string& path() const noexcept { return path_; }

  /// Reads at most `size` bytes at `offset`; fewer only at the end of the file.
  std::size_t read_at(std::uint64_t offset, char* buffer, std::size_t size) const;
  /// Writes all of `bytes` at the current position.
  void write(std::string_view bytes);
  /// Writes all of `bytes` at `offset`; does not move the position.
  void write_at(std::uint64_t offset, std::string_view bytes);
  /// Renames the file; a file that had the new name loses it.
  void rename(const std::string& path);
  /// Makes the file this long: cuts it, or adds a hole.
  void resize(std::uint64_t size_bytes);
  /// Forces content and size to the device.
  void sync();
  /// Takes an exclusive flock without waiting. The kernel frees it when the file is closed, however
  /// the process ends.
  [[nodiscard]] FileLock try_lock();
  /// Takes a lock on the byte at `offset` without waiting, shared or exclusive, in place of the one
  /// that this descriptor has; false if another open file holds one that excludes it. The file need
  /// not be that long. As with try_lock, threads exclude each other too if each opens the file, and
  /// the kernel frees what a process leaves (Linux "open file description" locks).
  [[nodiscard]] bool try_lock_byte(std::uint64_t offset, bool exclusive);
  void unlock_byte(std::uint64_t offset) noexcept;
  /// True if another open file holds a lock on the byte. Takes none; a file that was opened for
  /// reading will do.
  [[nodiscard]] bool is_byte_locked(std::uint64_t offset) const;
  /// True if that lock is a shared one.
  [[nodiscard]] bool is_byte_shared(std::uint64_t offset) const;
  /// Makes room on the device for `size_bytes` and the file this long, so that writing it cannot
  /// run out of space later; where the file system cannot, only makes it this long.
  void reserve(std::uint64_t size_bytes);
  /// False if the file was unlinked since it was opened.
  bool has_name() const;
  void close() noexcept;

 private:
  struct Locked;
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  /// From now on a forked child finds it closed.
  void stay_with_process();
  void take_over(File& other) noexcept;
  /// F_UNLCK, F_RDLCK or F_WRLCK: what another open file holds on the byte.
  int lock_on_byte(std::uint64_t offset) const;

  int fd_ = -1;
  bool stays_with_process_ = false;
  std::string path_;
};

/// A file that appears under its name whole or not at all.
///
/// Bytes go to `<path>.<random>.tmp` in the same directory, locked while it is written; commit()
/// syncs it, renames it over `path`, and syncs the directory. A writer that is destroyed without
/// commit, or killed, leaves the old file as it was; sweep_temporaries removes what a killed one
/// left. Where the file system has no flock, a living writer's file cannot be told from a killed
/// one's: then nothing is swept, and files of killed writers stay. One thread; a forked child's
/// copy does nothing.
class SHARDWISE_EXPORT AtomicFile {
 public:
  /// Errors: InvalidArgument if a device, a pipe or a socket has that name; kIo.
  /// @param mode  as File::create_exclusive().
  explicit AtomicFile(std::string path, unsigned mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  File& file() noexcept { return file_; }
  /// Until commit().
  const std::string& temporary_path() const noexcept { return file_.path(); }
  /// The name that commit() will use may be chosen late, once the content is known.
  void set_path(std::string path) { path_ = std::move(path); }
  /// Gives the temporary file this name, under which it stays if it is not committed. It keeps its
  /// lock.
  void keep_as(const std::string& name);
  /// After commit the file keeps its lock until this object is destroyed.
  void commit();

 private:
  std::string path_;
  File file_;
  bool stays_ = false;  // if it is not committed
  bool committed_ = false;
};

/// True if `name` is that of a temporary file of the file called `base`, both without a directory.
SHARDWISE_EXPORT bool is_temporary_name(std::string_view name, std::string_view base) noexcept;

/// Removes the temporary file `path` unless a living writer holds it. True if it is gone. Never
/// throws.
SHARDWISE_EXPORT bool sweep_temporary(const std::string& path) noexcept;

/// Removes `<path>.*.tmp` files that no living writer holds. Never throws: what cannot be removed
/// stays for the next time.
SHARDWISE_EXPORT void sweep_temporaries(const std::string& path) noexcept;

/// Makes the entries of the directory that holds `path` durable.
SHARDWISE_EXPORT void sync_directory_of(const std::string& path);

/// Where `path` leads if it is a symbolic link, and where that leads, and so on; itself otherwise,
/// also if it does not exist. The directories of the path stay as they are.
/// Errors: kIo if the links go on for ever.
SHARDWISE_EXPORT std::string behind_links(std::string path);

/// The directory part of `path`, "." if there is none.
SHARDWISE_EXPORT std::string directory_of(const std::string& path);

/// A name beside `path` for what is written until it gets that name; sweep_temporaries() knows it.
SHARDWISE_EXPORT std::string temporary_name(const std::string& path);

/// `length` random characters of [0-9a-f], from the kernel.
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
