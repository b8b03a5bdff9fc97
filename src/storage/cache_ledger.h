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
    std::uint64_t doubt = 0;    ///< another word whenever doubt is cast; 0: there is no file

    /// True if nothing that is counted changed between the two, as far as anybody told.
    friend bool operator==(const Count& x, const Count& y) noexcept {
      return x.changes == y.changes && x.doubt == y.doubt;
    }
  };
  /// Never throws: a file that cannot be read is in doubt.
  Count read() const noexcept;
  /// As read(), for one who is about to list the files: there is a word of doubt then, if the file
  /// can be written. What was listed may be counted if is_unchanged_since() says so afterwards.
  Count read_before_listing() const noexcept;
  /// True if what was listed after `before` is still what is there.
  bool is_unchanged_since(const Count& before) const noexcept {
    return before.doubt != 0 && read() == before;
  }
  /// From now on the count is in doubt; where that cannot be written, the file goes.
  void doubt() const noexcept;
  /// Runs `change`, which returns by how many bytes the cache grew. While it runs, and if it
  /// throws, the count is in doubt.
  /// @param used_bytes  what was counted before the change; nothing: as the ledger says.
  void change(const std::function<std::int64_t()>& change,
              std::optional<std::uint64_t> used_bytes = {}) const;

 private:
  void forget() const noexcept;

  const CacheDirectory& directory_;
};

}  // namespace shardwise::detail
