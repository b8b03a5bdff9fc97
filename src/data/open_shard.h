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

/// An open shard with its records. A Sample refers to it and keeps it alive.
struct OpenShard {
  // First member, because every view of a sample needs it.
  const char* data = nullptr;  // start of the mapping; null if each sample has its own bytes
  SegmentView segment;
  std::uint64_t first_sample = 0;
  std::shared_ptr<const Index> index;
  std::string path;
  std::uint64_t stored_bytes = 0;
  CachedShard cached;  // pins the mapped shard, if it is cached; destroyed after `map`
  std::optional<MappedFile> map;
  /// Not null while `map` is the mapping of a shard that is still being fetched. In that case the
  /// bytes are incomplete, and `data` is null.
  std::shared_ptr<ComingShard> coming;
  /// The shard's name in the cache, if the cache had no room for it; otherwise empty. Until the
  /// shard is cached, its samples are read from the source.
  std::string uncached_name = {};
  std::shared_ptr<const void> own_records;  // owns the data of `segment`, if the index does not
  /// The mapped file was modified. This stays true even if another file replaces the file.
  mutable std::atomic<bool> was_written_to{false};

  std::uint64_t size_bytes() const noexcept { return map ? map->bytes().size() : 0; }
  /// True if the shard is outside the cache's budget or is read uncached. Opening it again costs a
  /// fetch or a search for room.
  bool is_costly() const noexcept { return !uncached_name.empty() || cached.is_overflow(); }
  /// Returns false if the mapped file was modified. Cost: a stat(2).
  bool is_unchanged() const;
};

class MemberReader;

/// The bytes of a sample whose shard has no `data`.
struct OwnBytes {
  /// In `starts`: the member is not in memory. SampleAccess::open_field() reads parts of it.
  static constexpr std::size_t kInParts = static_cast<std::size_t>(-1);

  const char* at = nullptr;
  std::vector<std::size_t> starts;  // offset of each member from `at`
  std::unique_ptr<char[]> bytes;    // memory that `at` points into, unless it is mapped
  std::shared_ptr<const MemberReader> reader = nullptr;  // not null if a member is kInParts
};

/// Options for opening shards.
struct ShardOpening {
  Dataset::Access access = Dataset::Access::kMap;
  std::shared_ptr<ShardCache> cache = nullptr;
  NextUseOf next_use = nullptr;  ///< tells the cache when its shards are needed next
  CancelToken cancel = {};
  bool was_followed = false;  ///< the caller followed the shard while it was fetched
  /// Returns true if the shard's server can send parts of it. Null means false.
  std::function<bool(const Index::Shard& info)> can_read_parts = nullptr;
  /// Called to check a remote shard before single samples of it are fetched.
  std::function<void(const Index::Shard& info)> require_first_block = nullptr;
};

/// Opens shard `number` and checks its records. Maps the shard's file if `how.access` requires it
/// and mapping works.
std::unique_ptr<const OpenShard> open_shard(const std::shared_ptr<const Index>& index,
                                            std::uint64_t number, const ShardOpening& how);

/// Opens a shard that is being fetched, and checks its records. Waits until the fetch begins.
/// Returns null if the fetch has ended.
/// Errors: CorruptIndex; CannotMap; Cancelled.
std::unique_ptr<const OpenShard> open_coming(const std::shared_ptr<const Index>& index,
                                             const Index::Shard& info, CachedShard held,
                                             std::shared_ptr<ComingShard> coming,
                                             const CancelToken& cancel);

/// Returns the cache request for a shard; nullopt if the shard is a local, uncompressed file.
std::optional<CacheRequest> cache_request(const std::shared_ptr<const Index>& index,
                                          std::uint64_t number);

/// Throws StaleIndex if a local shard's file is not the indexed one. Compares size, time and first
/// 512 bytes. If the shard's time may differ and does, also compares some headers.
/// @param segment  used only if the shard's time may differ.
void require_indexed(const Index::Shard& shard, const SegmentView& segment,
                     const FileIdentity& file, const ReadShard& read);

/// Returns `open()`, which opens the shard's file. If the file is missing, the error also gives the
/// number of missing shards and a remedy.
template <class Open>
auto finding(const Index& index, const Index::Shard& shard, const Open& open) {
  try {
    return open();
  } catch (const NotFound&) {
    throw missing_shard_error(index, shard, count_missing_shards(index));
  }
}

/// Throws StaleIndex if a file has changed since it was opened with the identity `then`.
/// @param place  description of what is being read: sample, shard and offset.
void require_same_file(const FileIdentity& now, const FileIdentity& then, const std::string& place);

}  // namespace shardwise::detail
