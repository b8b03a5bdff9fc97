#include "base/mapped_file.h"

#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <system_error>

#include "base/errno_error.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace bi = boost::interprocess;

struct MappedFile::Region {
  bi::mapped_region region;
};

namespace {

/// An open descriptor, in the interface that Boost requires for mapping.
struct Descriptor {
  int fd;
  bi::mapping_handle_t get_mapping_handle() const noexcept {
    return bi::ipcdetail::mapping_handle_from_file_handle(fd);
  }
};

bi::mapped_region map_whole(const Descriptor& file, std::size_t size, const std::string& path) {
  try {
    return bi::mapped_region(file, bi::read_only, 0, size);
  } catch (const bi::interprocess_exception& e) {
    throw CannotMap(
        "cannot map",
        in_quotes(path) + " (" + std::generic_category().message(e.get_native_error()) + ")",
        "raise the limits of address space (ulimit -v) and of mappings "
        "(vm.max_map_count)");
  }
}

}  // namespace

MappedFile MappedFile::open(const std::string& path, Access access) {
  file_identity(path);  // called before opening, to throw if the file is missing or not regular
  return open(File::open_read(path), access);
}

MappedFile MappedFile::open(const File& file, Access access) {
  // The identity is read from the descriptor, because the name may already refer to another file.
  const FileIdentity identity = file_identity(file.fd(), file.path());
  if (identity.size_bytes == 0) return MappedFile(nullptr, {}, identity);
  bi::mapped_region region = map_whole({file.fd()}, identity.size_bytes, file.path());
  const std::string_view bytes(static_cast<const char*>(region.get_address()), region.get_size());
  MappedFile mapped(std::make_unique<Region>(Region{std::move(region)}), bytes, identity);
  if (access != Access::kNormal) mapped.advise(access);
  return mapped;
}

void MappedFile::advise(Access access) noexcept {
  if (region_ == nullptr) return;
  using Advised = bi::mapped_region;
  region_->region.advise(access == Access::kSequential ? Advised::advice_sequential
                         : access == Access::kRandom   ? Advised::advice_random
                                                       : Advised::advice_normal);
}

MappedFile::MappedFile(std::unique_ptr<Region> region, std::string_view bytes,
                       FileIdentity identity)
    : region_(std::move(region)), bytes_(bytes), identity_(identity) {}
MappedFile::~MappedFile() = default;
MappedFile::MappedFile(MappedFile&&) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&&) noexcept = default;

}  // namespace shardwise::detail
