#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/mapped_file.h"
#include "index/missing_shards.h"
#include "index/offset_table.h"
#include "ingest/quick_check.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/error.h"
#include "shardwise/data/dataset.h"
#include "shardwise/index/index.h"
#include "shardwise/storage/shard_cache.h"
#include "storage/cache_request.h"

namespace shardwise::detail {

/// A shard with its records. A Sample points into it, and keeps it alive.
struct OpenShard {
  // These first, since every view needs them.
  const char* data = nullptr;  // start of the mapping; none: samples hold bytes of their own
  SegmentView segment;
  std::uint64_t first_sample = 0;
  std::shared_ptr<const Index> index;
  std::string path;
  std::uint64_t stored_bytes = 0;
  CachedShard cached;  // what is mapped, if it is in the cache; let go of after the mapping
  std::optional<MappedFile> map;
  /// Not null if `map` is of a shard that is being fetched: then its bytes are not all there, and
  /// there is no `data`.
  std::shared_ptr<ComingShard> coming;
  /// The shard's name in the cache, which had no room: its samples are read from its source, until
  /// it has come. Else empty.
  std::string uncached_name = {};
  std::shared_ptr<const void> own_records;  // owns what `segment` points into, if not the index
  /// The mapped file was seen to be written to. It stays so, even if another file takes its name.
  mutable std::atomic<bool> was_written_to{false};

  std::uint64_t size_bytes() const noexcept { return map ? map->bytes().size() : 0; }
};

/// Where the bytes of a sample are, whose shard has no `data`.
struct OwnBytes {
  const char* at = nullptr;
  std::vector<std::size_t> starts;  // of each member, from `at` on
  std::unique_ptr<char[]> bytes;    // what `at` points to, if the shard is not mapped
};

/// How shards are opened.
struct ShardOpening {
  Dataset::Access access = Dataset::Access::kMap;
  std::shared_ptr<ShardCache> cache = nullptr;
  NextUseOf next_use = nullptr;  ///< of the cache's shards, as seen from now
  CancelToken cancel = {};
  bool was_followed = false;  ///< while it came
  /// True if the shard's server gives parts of it; null: none does.
  std::function<bool(const Index::Shard& info)> can_read_parts = nullptr;
  /// Looks at a remote shard of which single samples will be fetched.
  std::function<void(const Index::Shard& info)> require_first_block = nullptr;
};

/// Opens shard `number` with its records checked; if it is to be mapped and can be, its file too.
std::unique_ptr<const OpenShard> open_shard(const std::shared_ptr<const Index>& index,
                                            std::uint64_t number, const ShardOpening& how);

/// A shard that is coming, its records checked. Null if it is over. Waits until its fetch began.
/// Errors: CorruptIndex; CannotMap; Cancelled.
std::unique_ptr<const OpenShard> open_coming(const std::shared_ptr<const Index>& index,
                                             const Index::Shard& info, CachedShard held,
                                             std::shared_ptr<ComingShard> coming,
                                             const CancelToken& cancel);

/// The request by which a cache is asked for a shard; nothing if it is a local, plain file.
std::optional<CacheRequest> cache_request(const std::shared_ptr<const Index>& index,
                                          std::uint64_t number);

/// Throws StaleIndex unless a local shard's file is the one that was indexed, by its size, its time
/// and its first block. If it has another time, and may have one, more of its headers are compared.
/// @param segment  used only if the shard may have another time.
void require_indexed(const Index::Shard& shard, const SegmentView& segment,
                     const FileIdentity& file, const ReadShard& read);

/// Calls `open`, which looks for the shard's file, and returns what it returns. Where there is no
/// such file, the error says how many shards are missing, and what to do.
template <class Open>
auto finding(const Index& index, const Index::Shard& shard, const Open& open) {
  try {
    return open();
  } catch (const NotFound&) {
    throw missing_shard_error(index, shard, count_missing_shards(index));
  }
}

/// Throws StaleIndex if a file that was opened as `then` is another one now.
/// @param sample  what was read, as Sample::describe().
/// @param offset  of it in the shard, bytes.
void require_same_file(const FileIdentity& now, const FileIdentity& then, const std::string& sample,
                       std::uint64_t offset);

}  // namespace shardwise::detail
