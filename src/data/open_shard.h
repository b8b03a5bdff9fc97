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

/// An opened shard with its records. A Sample points into it, and keeps it alive.
struct OpenShard {
  // First, since every view needs them.
  const char* data = nullptr;  // start of the mapping; if null, samples have separate bytes
  SegmentView segment;
  std::uint64_t first_sample = 0;
  std::shared_ptr<const Index> index;
  std::string path;
  std::uint64_t stored_bytes = 0;
  CachedShard cached;  // the mapped shard, if it is cached; destroyed after `map`
  std::optional<MappedFile> map;
  /// Not null while `map` is of a shard that is being fetched. Then the bytes are incomplete, and
  /// `data` is null.
  std::shared_ptr<ComingShard> coming;
  /// The shard's name in the cache if the cache had no room. Samples are then read from the source
  /// until the shard is cached. Else empty.
  std::string uncached_name = {};
  std::shared_ptr<const void> own_records;  // owns the data of `segment`, unless the index does
  /// The mapped file was modified. This persists even if another file takes its name.
  mutable std::atomic<bool> was_written_to{false};

  std::uint64_t size_bytes() const noexcept { return map ? map->bytes().size() : 0; }
};

/// The location of a sample's bytes, if its shard has no `data`.
struct OwnBytes {
  const char* at = nullptr;
  std::vector<std::size_t> starts;  // offset of each member from `at`
  std::unique_ptr<char[]> bytes;    // memory behind `at`, unless it is mapped
};

/// How shards are opened.
struct ShardOpening {
  Dataset::Access access = Dataset::Access::kMap;
  std::shared_ptr<ShardCache> cache = nullptr;
  NextUseOf next_use = nullptr;  ///< of the cache's shards, as of now
  CancelToken cancel = {};
  bool was_followed = false;  ///< while it was fetched
  /// True if the shard's server sends parts of it; null means false.
  std::function<bool(const Index::Shard& info)> can_read_parts = nullptr;
  /// Checks a remote shard before single samples of it are fetched.
  std::function<void(const Index::Shard& info)> require_first_block = nullptr;
};

/// Opens shard `number` with its records checked, and maps its file if `how` says so and it can be
/// mapped.
std::unique_ptr<const OpenShard> open_shard(const std::shared_ptr<const Index>& index,
                                            std::uint64_t number, const ShardOpening& how);

/// Opens a shard that is being fetched, with its records checked. Waits until its fetch begins;
/// returns null if the fetch is over.
/// Errors: CorruptIndex; CannotMap; Cancelled.
std::unique_ptr<const OpenShard> open_coming(const std::shared_ptr<const Index>& index,
                                             const Index::Shard& info, CachedShard held,
                                             std::shared_ptr<ComingShard> coming,
                                             const CancelToken& cancel);

/// The cache's request for a shard; nullopt if it is a local, plain file.
std::optional<CacheRequest> cache_request(const std::shared_ptr<const Index>& index,
                                          std::uint64_t number);

/// Throws StaleIndex unless a local shard's file is the indexed one, by its size, time and first
/// block. If its time may differ and does, more headers are compared.
/// @param segment  used only if the shard's time may differ.
void require_indexed(const Index::Shard& shard, const SegmentView& segment,
                     const FileIdentity& file, const ReadShard& read);

/// Returns `open()`, which looks for the shard's file. If the file is missing, the error says how
/// many shards are missing, and what to do.
template <class Open>
auto finding(const Index& index, const Index::Shard& shard, const Open& open) {
  try {
    return open();
  } catch (const NotFound&) {
    throw missing_shard_error(index, shard, count_missing_shards(index));
  }
}

/// Throws StaleIndex if a file that was opened as `then` has changed.
/// @param sample  the sample being read, see Sample::describe().
/// @param offset  of the sample in the shard, bytes.
void require_same_file(const FileIdentity& now, const FileIdentity& then, const std::string& sample,
                       std::uint64_t offset);

}  // namespace shardwise::detail
