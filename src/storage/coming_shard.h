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

/// The bytes of a plain shard while this process fetches it into a cache, for those of its readers
/// that do not wait for the whole.
///
/// What came stays as it is: a fetch that begins anew does so in another file, and this is over.
/// Nothing here says that the bytes are right; see CacheAccess::follow().
///
/// Threads: internally synchronised. Processes: to a forked child it is over.
class SHARDWISE_EXPORT ComingShard {
 public:
  /// The shard is fetched into `file`, which has the shard's size and lives until end().
  void begin(const File& file);
  /// The bytes in [begin, end) are in the file.
  void came(std::uint64_t begin, std::uint64_t end);
  /// No more bytes come into the file. Of several calls the first counts.
  /// @param is_kept  the shard passed all checks, and is in the cache.
  /// @return  true if somebody has mapped it.
  bool end(bool is_kept) noexcept;
  /// Of each reader that waits, the first byte that it lacks; in the order in which they asked.
  std::vector<std::uint64_t> wanted() const;

  /// True if there is nothing to follow: the shard is to be asked for as a whole.
  bool is_over() const;
  /// Waits until the fetch began, and maps the whole shard; nothing if it is over. The bytes are
  /// those of the shard only where wait_for() says so. Errors: CannotMap; Cancelled.
  std::optional<MappedFile> map(const CancelToken& cancel);
  /// Waits until these bytes are there. False: the fetch failed, or began anew. Errors: Cancelled.
  [[nodiscard]] bool wait_for(std::uint64_t begin, std::uint64_t end, const CancelToken& cancel);

 private:
  enum class State : std::uint8_t { kWaiting, kComing, kKept, kFailed };

  bool is_here() const noexcept { return generation_ == process_generation(); }

  const std::uint64_t generation_ = process_generation();
  mutable Mutex mutex_;
  Condition changed_;
  State state_ SHARDWISE_GUARDED_BY(mutex_) = State::kWaiting;
  const File* file_ SHARDWISE_GUARDED_BY(mutex_) = nullptr;  // while it is coming
  bool is_mapped_ SHARDWISE_GUARDED_BY(mutex_) = false;
  ByteRanges there_ SHARDWISE_GUARDED_BY(mutex_);
  std::list<std::uint64_t> waiting_ SHARDWISE_GUARDED_BY(mutex_);  // where those who wait begin
};

}  // namespace shardwise::detail
