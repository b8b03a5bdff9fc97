#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// A whole file mapped read-only. After construction it needs neither the file's name nor a
/// descriptor. Moving the object does not change the address of bytes().
/// Threads: immutable; safe from any thread.
/// Caveat: if another process truncates the file in place, reading the pages beyond its new end
///   raises SIGBUS. The functions of mapped_read.h read without raising it. Replace shards by
///   rename(2).
class SHARDWISE_EXPORT MappedFile {
 public:
  enum class Access : unsigned char {
    kSequential,  ///< one read from front to back; the kernel reads ahead
    kRandom,      ///< small reads in any order; the kernel does not read ahead
    kNormal
  };

  /// Maps the regular file at `path`. An empty file gives an empty view.
  /// Errors: NotFound; kIo; CannotMap; InvalidArgument if it is a directory or a device.
  [[nodiscard]] static MappedFile open(const std::string& path, Access access = Access::kNormal);
  /// Maps an open file, which may have no name.
  [[nodiscard]] static MappedFile open(const File& file, Access access = Access::kNormal);
  ~MappedFile();
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;

  /// Tells the kernel how the file will be read from now on (madvise).
  void advise(Access access) noexcept;

  /// True if this process has as many mapped files as its budget. The budget is three quarters of
  /// the kernel's limit on mappings (vm.max_map_count), because memory allocation, threads and
  /// libraries need mappings, too. Code that can do without another mapping then does so. open()
  /// never refuses.
  static bool is_budget_spent();
  /// Replaces the budget, for tests; 0 means the kernel's. Returns the budget that applied before.
  static std::size_t set_budget(std::size_t max_files) noexcept;

  std::string_view bytes() const noexcept { return bytes_; }
  /// Returns the mapped file's identity, read from the descriptor that was mapped.
  const FileIdentity& identity() const noexcept { return identity_; }

 private:
  struct Region;
  MappedFile(std::unique_ptr<Region> region, std::string_view bytes, FileIdentity identity);

  std::unique_ptr<Region> region_;
  std::string_view bytes_;
  FileIdentity identity_;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::MappedFile;
}  // namespace shardwise
