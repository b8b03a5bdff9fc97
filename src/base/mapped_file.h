#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// A whole file mapped read-only. Immutable and safe from any thread; the mapping outlives the name
/// and the descriptor, and holds no descriptor. Movable; bytes() stays where it is.
///
/// Caveat: if another process truncates the file in place, touching the pages beyond its new end
/// raises SIGBUS, as with every mapping; mapped_read.h reads without. Replace shards by rename.
class SHARDWISE_EXPORT MappedFile {
 public:
  enum class Access : unsigned char {
    kSequential,  ///< read once from front to back: the kernel reads ahead
    kRandom,      ///< small reads in any order: the kernel does not read ahead
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

  /// Says how it will be read from now on.
  void advise(Access access) noexcept;

  std::string_view bytes() const noexcept { return bytes_; }
  /// The identity of the mapped file, taken from the descriptor it was mapped through.
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
