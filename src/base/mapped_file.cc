#include "base/mapped_file.h"

#include <atomic>
#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/errno_error.h"
#include "base/text.h"

namespace shardwise::detail {
namespace bi = boost::interprocess;

namespace {

// Number of files that this process has mapped. A forked child inherits mappings and number.
std::atomic<std::size_t> num_mapped{0};
std::atomic<std::size_t> max_mapped{0};  // 0 until needed

std::size_t max_mapped_of_kernel() {
  std::size_t max = 65'530;  // the kernel's default
  std::ifstream("/proc/sys/vm/max_map_count") >> max;
  return max - max / 4;
}

}  // namespace

struct MappedFile::Region {
  explicit Region(bi::mapped_region mapped) noexcept : region(std::move(mapped)) { ++num_mapped; }
  ~Region() { --num_mapped; }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

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
  MappedFile mapped(std::make_unique<Region>(std::move(region)), bytes, identity);
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

bool MappedFile::is_budget_spent() {
  std::size_t max = max_mapped.load(std::memory_order_relaxed);
  if (max == 0) max_mapped = max = max_mapped_of_kernel();
  return num_mapped.load(std::memory_order_relaxed) >= max;
}

std::size_t MappedFile::set_budget(std::size_t max_files) noexcept {
  return max_mapped.exchange(max_files);
}

MappedFile::MappedFile(std::unique_ptr<Region> region, std::string_view bytes,
                       FileIdentity identity)
    : region_(std::move(region)), bytes_(bytes), identity_(identity) {}
MappedFile::~MappedFile() = default;
MappedFile::MappedFile(MappedFile&&) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&&) noexcept = default;

}  // namespace shardwise::detail
