#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "storage/cache_directory.h"

namespace shardwise::detail {

/// The number of bytes in a shard cache, stored in its file `used`
/// (docs/formats/cache-directory.md). With it, a shard that fits is fetched without a listing.
///
/// The files are the truth. A process that cannot say how far a change got casts doubt on the
/// count, and the next process that needs the count lists the files.
///
/// Threads: change() requires the room byte; the others are safe concurrently.
/// Processes: as threads.
class CacheLedger {
 public:
  explicit CacheLedger(const CacheDirectory& directory) : directory_(directory) {}

  struct Count {
    /// Bytes of all shards and of all locked temporary files; nullopt while in doubt.
    std::optional<std::uint64_t> used_bytes = {};
    std::uint64_t changes = 0;  ///< grows with each change
    std::uint64_t doubt = 0;    ///< a new random word whenever doubt is cast; 0 if there is no file

    /// True if no change was recorded between the two.
    friend bool operator==(const Count& x, const Count& y) noexcept {
      return x.changes == y.changes && x.doubt == y.doubt;
    }
  };
  /// Never throws: a file that cannot be read is in doubt.
  Count read() const noexcept;
  /// Reads the count before a listing, and makes sure that there is a word of doubt if the file can
  /// be written. If is_unchanged_since() holds after the listing, the listed bytes may be recorded.
  Count read_before_listing() const noexcept;
  /// True if the listing made after `before` is still current.
  bool is_unchanged_since(const Count& before) const noexcept {
    return before.doubt != 0 && read() == before;
  }
  /// Casts doubt on the count; removes the file if that cannot be written.
  void doubt() const noexcept;
  /// Runs `change`, which returns by how many bytes the cache grew. While it runs, and if it
  /// throws, the count is in doubt.
  /// @param used_bytes  count before the change; nullopt means: take the ledger's.
  void change(const std::function<std::int64_t()>& change,
              std::optional<std::uint64_t> used_bytes = {}) const;

 private:
  void forget() const noexcept;

  const CacheDirectory& directory_;
};

}  // namespace shardwise::detail
