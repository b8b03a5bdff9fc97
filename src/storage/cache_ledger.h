#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "storage/cache_directory.h"

namespace shardwise::detail {

/// The number of bytes in a shard cache, stored in the cache's file `used`
/// (docs/formats/cache-directory.md). With this count, a shard that fits is fetched without listing
/// the cache.
///
/// The files in the cache are authoritative; the count is only an optimisation. A process that may
/// have stopped in the middle of a change marks the count as in doubt. The next process that needs
/// the count then lists the files.
///
/// Threads: change() requires the lock on the room byte; the other calls are safe concurrently.
/// Processes: as for threads.
class CacheLedger {
 public:
  explicit CacheLedger(const CacheDirectory& directory) : directory_(directory) {}

  struct Count {
    /// Bytes of all shards and of all locked temporary files; nullopt while the count is in doubt.
    std::optional<std::uint64_t> used_bytes = {};
    std::uint64_t changes = 0;  ///< increases with each change
    /// Random word, replaced each time the count is put in doubt; 0 if there is no file.
    std::uint64_t doubt = 0;

    /// True if no change was recorded between the two counts.
    friend bool operator==(const Count& x, const Count& y) noexcept {
      return x.changes == y.changes && x.doubt == y.doubt;
    }
  };
  /// Never throws: an unreadable file counts as in doubt.
  Count read() const noexcept;
  /// Reads the count before a listing. Writes a doubt word if it is missing and the file is
  /// writable. If is_unchanged_since() returns true after the listing, the listed bytes may be
  /// recorded.
  Count read_before_listing() const noexcept;
  /// True if the ledger has not changed since `before` was read. In this case a listing that was
  /// made in between is still current.
  bool is_unchanged_since(const Count& before) const noexcept {
    return before.doubt != 0 && read() == before;
  }
  /// Marks the count as in doubt. Removes the file if it cannot be written.
  void doubt() const noexcept;
  /// Runs `change`, which returns the growth of the cache in bytes. The count is in doubt while it
  /// runs, and stays in doubt if it throws.
  /// @param used_bytes  count before the change; nullopt means: use the ledger's count.
  void change(const std::function<std::int64_t()>& change,
              std::optional<std::uint64_t> used_bytes = {}) const;

 private:
  void forget() const noexcept;

  const CacheDirectory& directory_;
};

}  // namespace shardwise::detail
