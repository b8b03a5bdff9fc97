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

/// The bytes of a plain shard while this process fetches it into a cache, for readers that do not
/// wait for the whole shard.
///
/// Bytes that arrived do not change: if the fetch restarts, it uses another file, and this object
/// is over. The bytes are unverified; see CacheAccess::follow().
///
/// Threads: internally synchronised.
/// Processes: in a forked child it is over.
class SHARDWISE_EXPORT ComingShard {
 public:
  /// Reports that the shard is fetched into `file`, which has the shard's size and lives until
  /// end().
  void begin(const File& file);
  /// Reports that the bytes in [begin, end) are in the file.
  void came(std::uint64_t begin, std::uint64_t end);
  /// Reports that no more bytes will be written to the file. Only the first call counts.
  /// @param is_kept  the shard passed all checks, and is in the cache.
  /// @return  true if a reader has mapped the file.
  bool end(bool is_kept) noexcept;
  /// The first missing byte of each waiting reader, in the order of their calls.
  std::vector<std::uint64_t> wanted() const;

  /// True if the shard can no longer be followed; call CacheAccess::get() instead.
  bool is_over() const;
  /// Waits until the fetch begins, and maps the whole shard; nullopt if it is over. Read only bytes
  /// that wait_for() has confirmed.
  /// Errors: CannotMap; Cancelled.
  std::optional<MappedFile> map(const CancelToken& cancel);
  /// Waits until these bytes are there; returns false if the fetch failed or restarted.
  /// Errors: Cancelled.
  [[nodiscard]] bool wait_for(std::uint64_t begin, std::uint64_t end, const CancelToken& cancel);

 private:
  enum class State : std::uint8_t { kWaiting, kComing, kKept, kFailed };

  bool is_here() const noexcept { return generation_ == process_generation(); }

  const std::uint64_t generation_ = process_generation();
  mutable Mutex mutex_;
  Condition changed_;
  State state_ SHARDWISE_GUARDED_BY(mutex_) = State::kWaiting;
  const File* file_ SHARDWISE_GUARDED_BY(mutex_) = nullptr;  // null unless it is being fetched
  bool is_mapped_ SHARDWISE_GUARDED_BY(mutex_) = false;
  ByteRanges there_ SHARDWISE_GUARDED_BY(mutex_);
  std::list<std::uint64_t> waiting_ SHARDWISE_GUARDED_BY(mutex_);  // byte that each reader awaits
};

}  // namespace shardwise::detail
