#include "shardwise/base/mapped_file.h"

#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <system_error>

#include "shardwise/base/error.h"
#include "shardwise/base/text.h"

namespace shardwise {
namespace bi = boost::interprocess;

struct MappedFile::Region {
  bi::mapped_region region;
};

namespace {

bi::mapped_region map_whole(const bi::file_mapping& file, std::size_t size,
                            const std::string& path) {
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
  file_identity(path);  // typed errors for what is missing or no regular file
  try {
    const bi::file_mapping mapping(path.c_str(), bi::read_only);
    // Of what was opened, not of what the name says by now.
    const FileIdentity identity = file_identity(mapping.get_mapping_handle().handle, path);
    if (identity.size_bytes == 0) return MappedFile(nullptr, {}, identity);
    bi::mapped_region region = map_whole(mapping, identity.size_bytes, path);
    if (access == Access::kSequential) region.advise(bi::mapped_region::advice_sequential);
    if (access == Access::kRandom) region.advise(bi::mapped_region::advice_random);
    const std::string_view bytes(static_cast<const char*>(region.get_address()), region.get_size());
    return MappedFile(std::make_unique<Region>(Region{std::move(region)}), bytes, identity);
  } catch (const bi::interprocess_exception& e) {
    throw_errno(e.get_native_error(), "cannot map", path);
  }
}

MappedFile::MappedFile(std::unique_ptr<Region> region, std::string_view bytes,
                       FileIdentity identity)
    : region_(std::move(region)), bytes_(bytes), identity_(identity) {}
MappedFile::~MappedFile() = default;
MappedFile::MappedFile(MappedFile&&) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&&) noexcept = default;

}  // namespace shardwise
