#include "data/open_shard.h"

#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/mapped_read.h"
#include "shardwise/base/text.h"

namespace shardwise::detail {
namespace {

/// The shard's mapping, checked against the index; none if it cannot be mapped.
std::optional<MappedFile> map_shard(const ShardInfo& info) {
  std::optional<MappedFile> file;
  try {
    file = MappedFile::open(info.path);
  } catch (const CannotMap&) {
    return std::nullopt;
  }
  require_unchanged(info, file->identity().size_bytes, file->identity().mtime_ns);
  char block[kTarBlockBytes] = {};
  const std::string_view first = file->bytes().substr(0, sizeof block);
  if (!copy_mapped(block, first.data(), first.size())) {
    const FileIdentity now = file_identity(info.path);
    require_unchanged(info, now.size_bytes, now.mtime_ns);
    throw Error(ErrorCode::kIo, "cannot read a page of the mapped shard",
                in_quotes(info.path) + ", offset 0", "check the disk, then run again");
  }
  require_first_header(info, {block, first.size()});
  return file;
}

}  // namespace

std::unique_ptr<const OpenShard> open_shard(const std::shared_ptr<const Index>& index,
                                            std::uint64_t number, Access access) {
  const ShardInfo info = index->shard(number);
  if (info.compression != Compression::kNone) {
    throw Unsupported("the shard is compressed (" +
                          std::string(compression_name(info.compression)) +
                          "), and its samples cannot be read in place",
                      in_quotes(info.path), "expand it, and index the expanded file");
  }
  auto shard = std::make_unique<OpenShard>();
  if (access == Access::kMap) shard->map = map_shard(info);
  if (shard->map) shard->data = shard->map->bytes().data();
  shard->segment = index->segment(number);
  if (!shard->segment.fits_shard(info.size_bytes)) {
    throw CorruptIndex("the index is damaged",
                       in_quotes(index->path()) + " (shard " + std::to_string(number) +
                           ": a member lies outside it)",
                       "build the index again with `shardwise index`");
  }
  shard->index = index;
  shard->first_sample = info.first_sample;
  shard->path = info.path;
  return shard;
}

void require_first_header(const ShardInfo& shard, std::string_view block) {
  if (hash64(block) == shard.first_header_hash) return;
  throw StaleIndex("the shard changed since it was indexed, though its size and time did not",
                   in_quotes(shard.path) + ", offset 0",
                   "run `shardwise verify`, then build the index anew under another name");
}

void require_same_file(const FileIdentity& now, const FileIdentity& then, const std::string& sample,
                       std::uint64_t offset) {
  if (now == then) return;
  const std::string how = now.size_bytes == then.size_bytes
                              ? "its time changed, its size did not"
                              : std::to_string(now.size_bytes) + " bytes now, " +
                                    std::to_string(then.size_bytes) + " then";
  throw StaleIndex("the shard changed while it was open",
                   sample + ", offset " + std::to_string(offset) + " (" + how + ")",
                   "run `shardwise index` again (it reads only what changed), or bring the old "
                   "shard back; then open the dataset again");
}

}  // namespace shardwise::detail
