#include "index/scratch_files.h"

#include <sqlite3.h>

#include <algorithm>
#include <new>

#include "base/fork.h"
#include "index/sqlite.h"

namespace shardwise::sqlite {

/// SQLite's default file system (VFS) with a count of the bytes written. Its structs extend those
/// of SQLite. In memory, the default VFS's struct of an open file follows ours.
struct ScratchFiles::Impl : sqlite3_vfs {
  /// REQUIRES: this thread is in a ForkSection.
  explicit Impl(std::uint64_t max)
      : sqlite3_vfs(*sqlite3_vfs_find(nullptr)),
        under(sqlite3_vfs_find(nullptr)),
        max_bytes(max),
        name("shardwise-scratch-" + std::to_string(reinterpret_cast<std::uintptr_t>(this))) {
    iVersion = 1;
    szOsFile = static_cast<int>(sizeof(File)) + under->szOsFile;
    pNext = nullptr;
    zName = name.c_str();
    xOpen = open;
    // The other functions of the default VFS expect the default VFS as their first argument.
    xDelete = [](sqlite3_vfs* v, const char* path, int sync) {
      return below(v)->xDelete(below(v), path, sync);
    };
    xAccess = [](sqlite3_vfs* v, const char* path, int flags, int* out) {
      return below(v)->xAccess(below(v), path, flags, out);
    };
    xFullPathname = [](sqlite3_vfs* v, const char* path, int size, char* out) {
      return below(v)->xFullPathname(below(v), path, size, out);
    };
    xRandomness = [](sqlite3_vfs* v, int size, char* out) {
      return below(v)->xRandomness(below(v), size, out);
    };
    xSleep = [](sqlite3_vfs* v, int us) { return below(v)->xSleep(below(v), us); };
    xCurrentTime = [](sqlite3_vfs* v, double* out) {
      return below(v)->xCurrentTime(below(v), out);
    };
    xGetLastError = [](sqlite3_vfs* v, int size, char* out) {
      return below(v)->xGetLastError(below(v), size, out);
    };
    if (sqlite3_vfs_register(this, 0) != SQLITE_OK) throw std::bad_alloc();
  }
  ~Impl() {
    const ForkSection section;
    sqlite3_vfs_unregister(this);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  struct File : sqlite3_file {
    Impl* owner;
    sqlite3_int64 bytes;  // the file's length

    sqlite3_file* below() noexcept { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };

  static Impl& of(sqlite3_vfs* vfs) { return *static_cast<Impl*>(vfs); }
  static sqlite3_vfs* below(sqlite3_vfs* vfs) { return of(vfs).under; }
  static File& of(sqlite3_file* file) { return *static_cast<File*>(file); }
  static sqlite3_file* below(sqlite3_file* file) { return of(file).below(); }

  static int open(sqlite3_vfs* vfs, const char* path, sqlite3_file* base, int flags, int* out) {
    File& file = *new (base) File{};
    file.owner = &of(vfs);
    const int code = below(vfs)->xOpen(below(vfs), path, file.below(), flags, out);
    // SQLite calls close() for the file only if pMethods is set.
    if (file.below()->pMethods != nullptr) file.pMethods = &kMethods;
    return code;
  }

  static int write(sqlite3_file* base, const void* bytes, int size, sqlite3_int64 offset) {
    File& file = of(base);
    Impl& all = *file.owner;
    if (all.cancel != nullptr && all.cancel->is_cancelled()) return SQLITE_INTERRUPT;
    const sqlite3_int64 longer = std::max(file.bytes, offset + size) - file.bytes;
    if (static_cast<std::uint64_t>(longer) > all.max_bytes - all.used_bytes) {
      all.too_small = true;
      return SQLITE_FULL;
    }
    all.used_bytes += static_cast<std::uint64_t>(longer);
    file.bytes += longer;
    const int code = below(base)->pMethods->xWrite(below(base), bytes, size, offset);
    if ((code & 0xFF) != SQLITE_IOERR) return code;
    int error = 0;
    below(base)->pMethods->xFileControl(below(base), SQLITE_FCNTL_LAST_ERRNO, &error);
    return is_no_room(error) ? SQLITE_FULL : code;
  }

  /// Records that the file now has at most this length.
  static void shrink(File& file, sqlite3_int64 bytes) {
    const sqlite3_int64 shorter = std::max<sqlite3_int64>(file.bytes - bytes, 0);
    file.owner->used_bytes -= static_cast<std::uint64_t>(shorter);
    file.bytes -= shorter;
  }

  static int truncate(sqlite3_file* base, sqlite3_int64 bytes) {
    const int code = below(base)->pMethods->xTruncate(below(base), bytes);
    if (code == SQLITE_OK) shrink(of(base), bytes);
    return code;
  }

  static int close(sqlite3_file* base) {
    shrink(of(base), 0);
    return below(base)->pMethods->xClose(below(base));
  }

  static const sqlite3_io_methods kMethods;

  sqlite3_vfs* const under;
  const std::uint64_t max_bytes;
  const std::string name;
  std::uint64_t used_bytes = 0;
  bool too_small = false;
  const CancelToken* cancel = nullptr;
};

// Version 1 of these methods has no memory mapping, so SQLite writes all data by xWrite.
const sqlite3_io_methods ScratchFiles::Impl::kMethods = {
    1,
    close,
    [](sqlite3_file* f, void* out, int size, sqlite3_int64 offset) {
      return below(f)->pMethods->xRead(below(f), out, size, offset);
    },
    write,
    truncate,
    [](sqlite3_file* f, int flags) { return below(f)->pMethods->xSync(below(f), flags); },
    [](sqlite3_file* f, sqlite3_int64* out) {
      return below(f)->pMethods->xFileSize(below(f), out);
    },
    [](sqlite3_file* f, int level) { return below(f)->pMethods->xLock(below(f), level); },
    [](sqlite3_file* f, int level) { return below(f)->pMethods->xUnlock(below(f), level); },
    [](sqlite3_file* f, int* out) { return below(f)->pMethods->xCheckReservedLock(below(f), out); },
    [](sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; },  // no hints: only xWrite grows it
    [](sqlite3_file* f) { return below(f)->pMethods->xSectorSize(below(f)); },
    [](sqlite3_file* f) { return below(f)->pMethods->xDeviceCharacteristics(below(f)); },
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

ScratchFiles::ScratchFiles(std::uint64_t max_bytes) {
  const ForkSection section;
  impl_ = std::make_unique<Impl>(max_bytes);
}
ScratchFiles::~ScratchFiles() = default;

const std::string& ScratchFiles::vfs_name() const noexcept { return impl_->name; }
void ScratchFiles::stop_if_cancelled(const CancelToken& cancel) noexcept {
  impl_->cancel = &cancel;
}
bool ScratchFiles::were_too_small() const noexcept { return impl_->too_small; }

}  // namespace shardwise::sqlite
