#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/fork.h"
#include "base/mapped_file.h"
#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "storage/byte_ranges.h"

namespace shardwise::detail {

/// An uncompressed shard that this process is fetching into a cache. Readers use it to read bytes
/// that have arrived, without waiting for the whole shard.
///
/// Bytes that have arrived do not change. If the fetch restarts, it uses another file, and this
/// object can no longer be followed (is_over()). The bytes are unverified; see
/// CacheAccess::follow().
///
/// Threads: internally synchronised.
/// Processes: in a forked child is_over() is true.
class SHARDWISE_EXPORT ComingShard {
 public:
  /// Reports that the shard is being fetched into `file`. The file has the shard's full size and
  /// stays open until end().
  void begin(const File& file);
  /// Reports that the bytes in [begin, end) have been written to the file.
  void came(std::uint64_t begin, std::uint64_t end);
  /// Reports that no more bytes will be written to the file. Only the first call has an effect.
  /// @param is_kept  the shard has passed all checks and is in the cache.
  /// @return  true if a reader has mapped the file.
  bool end(bool is_kept) noexcept;
  /// The first missing byte for each waiting reader, in the order in which they began to wait.
  std::vector<std::uint64_t> wanted() const;

  /// True if the shard can no longer be followed. Call CacheAccess::get() instead.
  bool is_over() const;
  /// Waits until the fetch begins, then maps the whole shard; nullopt if is_over(). Read only bytes
  /// that wait_for() has confirmed.
  /// Errors: CannotMap; Cancelled.
  std::optional<MappedFile> map(const CancelToken& cancel);
  /// Waits until these bytes have arrived. Returns false if the fetch failed or restarted.
  /// Errors: Cancelled.
  [[nodiscard]] bool wait_for(std::uint64_t begin, std::uint64_t end, const CancelToken& cancel);

 private:
  enum class State : std::uint8_t { kWaiting, kComing, kKept, kFailed };

  bool is_here() const noexcept { return generation_ == process_generation(); }

  const std::uint64_t generation_ = process_generation();
  mutable Mutex mutex_;
  Condition changed_;
  State state_ SHARDWISE_GUARDED_BY(mutex_) = State::kWaiting;
  // Null unless the shard is being fetched.
  const File* file_ SHARDWISE_GUARDED_BY(mutex_) = nullptr;
  bool is_mapped_ SHARDWISE_GUARDED_BY(mutex_) = false;
  ByteRanges there_ SHARDWISE_GUARDED_BY(mutex_);
  // Byte that each reader waits for.
  std::list<std::uint64_t> waiting_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace shardwise::detail
