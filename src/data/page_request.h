#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/open_shard.h"
#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "storage/shard_handle.h"

namespace shardwise::detail {

struct JoinSide;

/// Asks the kernel to read samples' bytes into the page cache, without waiting for them.
///
/// Works only on mapped shards. A local shard is opened for this purpose if few other shards are
/// needed at the same time. A shard in a ShardCache is not opened. This class never fetches shards.
/// Threads: one.
class SHARDWISE_EXPORT PageRequest {
 public:
  /// @param fields  the fields that will be read; nullopt means all fields.
  /// REQUIRES: `data` and `fields` outlive this object.
  PageRequest(const Dataset& data, const std::optional<std::vector<std::string>>& fields)
      : data_(data), fields_(fields) {}

  /// Requests the bytes of these samples, and merges nearby ranges. Ignores failed requests,
  /// because the reader of the sample will get the error.
  /// @return  the number of bytes requested.
  /// Errors: OutOfRange.
  /// Cost: one system call per range.
  std::uint64_t send(std::span<const std::uint64_t> samples);

 private:
  /// A range of bytes in a shard.
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  [[nodiscard]] ShardHandle<OpenShard> open(std::uint64_t shard, bool may_open) const;
  void add_ranges(const OpenShard& shard, std::uint64_t number);
  [[nodiscard]] std::uint64_t send_ranges(const OpenShard& shard);
  [[nodiscard]] std::uint64_t send_joined(const JoinSide& side,
                                          std::span<const std::uint64_t> samples) const;

  const Dataset& data_;
  const std::optional<std::vector<std::string>>& fields_;
  std::vector<std::uint64_t> numbers_;  // numbers of the samples in the index
  std::vector<std::uint32_t> wanted_;   // numbers of fields_ in the current shard
  std::vector<Range> ranges_;           // ranges in the current shard
};

}  // namespace shardwise::detail
