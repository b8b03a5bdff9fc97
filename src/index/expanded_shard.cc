#include "index/expanded_shard.h"

#include <sys/mman.h>

#include "index/tar_header.h"
#include "shardwise/base/error.h"
#include "shardwise/base/text.h"

namespace shardwise {

Compression shard_compression(std::string_view stored_bytes) noexcept {
  if (stored_bytes.size() >= tar::kBlockBytes && tar::has_valid_checksum(stored_bytes.data())) {
    return Compression::kNone;
  }
  return detect_compression(stored_bytes);
}

ExpandedShard::ExpandedShard(const std::string& path, const std::string& temporary,
                             const HeaderImage::Keep& keep, const std::function<void()>& tick)
    : path_(path),
      file_(MappedFile::open(path)),
      guard_(file_.bytes().data(), file_.bytes().size()),
      compression_(shard_compression(file_.bytes())) {
  if (compression_ == Compression::kNone) return;
  try {
    image_.emplace(file_.bytes(), compression_, path, temporary, keep, tick);
  } catch (const CorruptShard&) {
    require_unchanged();
    throw;
  }
}

void ExpandedShard::require_unchanged() const {
  if (!guard_.damaged() && file_identity(path_) == file_.identity()) return;
  throw StaleIndex("the shard changed while it was read", in_quotes(path_),
                   "wait until it is complete, then run again");
}

void ExpandedShard::forget_before(std::uint64_t offset) noexcept {
  constexpr std::uint64_t kStepBytes = std::uint64_t{8} << 20;  // a multiple of any page size
  if (offset - forgotten_ < 2 * kStepBytes) return;
  const std::uint64_t end = offset / kStepBytes * kStepBytes;
  // Only the mapping's pages go; the page cache keeps the file's.
  ::madvise(const_cast<char*>(bytes().data()) + forgotten_, end - forgotten_, MADV_DONTNEED);
  forgotten_ = end;
}

}  // namespace shardwise
