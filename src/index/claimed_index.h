#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "index/offset_table.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/index/index.h"

namespace shardwise::detail {

// An index without files. The number of samples of each shard comes from the claims of a
// descriptor, and members are unknown. It supports only the functions that need no members: size(),
// shard_of(), first_sample(), shard_starts(), shard() as claimed, fingerprint(), content(). Other
// functions throw Unsupported. The text states how to build an index.

/// A shard with the properties that a descriptor claims.
struct ClaimedShard {
  std::string path;  ///< path or URL
  std::uint64_t num_samples = 0;
  std::uint64_t size_bytes = 0;  ///< 0 if unknown
};

/// The numbering of `shards`, in their order.
class ClaimedNumbering {
 public:
  /// REQUIRES: the samples of all shards add up to less than 2^64.
  explicit ClaimedNumbering(std::vector<ClaimedShard> shards);

  [[nodiscard]] const std::vector<ShardEntry>& directory() const noexcept { return directory_; }
  [[nodiscard]] const std::vector<std::uint32_t>& hints() const noexcept { return hints_; }
  [[nodiscard]] std::uint32_t hint_shift() const noexcept { return hint_shift_; }
  [[nodiscard]] Index::Shard shard(std::uint64_t shard) const;

 private:
  const std::vector<ClaimedShard> shards_;
  std::vector<ShardEntry> directory_;  // only `first_sample` is set in each entry
  std::vector<std::uint32_t> hints_;
  std::uint32_t hint_shift_ = 0;
};

/// Internal access to an index.
struct SHARDWISE_EXPORT IndexAccess {
  /// @param path      path of the descriptor, as error texts show it.
  /// @param policies  used when shards are scanned.
  static std::shared_ptr<const Index> make_claimed(std::string path,
                                                   std::vector<ClaimedShard> shards,
                                                   const Hash128& fingerprint,
                                                   const DefectPolicies& policies);
  /// False for an index that was made from claims.
  static bool has_records(const Index& index) noexcept;
  /// Throws Unsupported if the index was made from claims.
  static void require_records(const Index& index);
  /// Returns two samples with the same key; nullopt if all keys differ.
  /// @param counts  returns false for samples to leave out; empty means that all samples count.
  /// Errors: CorruptIndex; Unsupported. Cost: reads the key section.
  static std::optional<std::pair<std::uint64_t, std::uint64_t>> find_repeated_key(
      const Index& index, const std::function<bool(std::uint64_t sample)>& counts);
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::IndexAccess;
}  // namespace shardwise
