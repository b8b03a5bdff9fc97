#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "storage/cache_directory.h"

namespace shardwise::detail {

/// How many bytes a shard cache holds, kept in its file `used` (docs/formats/cache-directory.md),
/// so that a shard that fits is fetched without a listing. The files themselves are the truth:
/// whoever cannot say how far a change came casts doubt on the count, and the next who needs it
/// lists them.
///
/// Threads and processes: doubt() and read() any; the others by the holder of the room byte.
class CacheLedger {
 public:
  explicit CacheLedger(const CacheDirectory& directory) : directory_(directory) {}

  struct Count {
    /// Of all shards and of all temporary files that are locked. Nothing: it is in doubt.
    std::optional<std::uint64_t> used_bytes = {};
    std::uint64_t changes = 0;  ///< grows with each change
  };
  /// Never throws: a file that cannot be read is in doubt.
  Count read() const noexcept;
  /// From now on the count is in doubt.
  void doubt() const noexcept;
  /// Runs `change`, which returns by how many bytes the cache grew. While it runs, and if it
  /// throws, the count is in doubt.
  /// @param used_bytes  what was counted before the change; nothing: as the ledger says.
  void change(const std::function<std::int64_t()>& change,
              std::optional<std::uint64_t> used_bytes = {}) const;

 private:
  const CacheDirectory& directory_;
};

}  // namespace shardwise::detail
