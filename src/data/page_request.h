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

/// Asks the kernel to read samples' bytes into the page cache, and does not wait for them.
///
/// Only of shards that are mapped. A local shard is opened for that, if few others are needed with
/// it; one that lies in a ShardCache is not, and nothing is ever fetched. One thread.
class SHARDWISE_EXPORT PageRequest {
 public:
  /// @param fields  the fields that will be read; none: all of them.
  /// REQUIRES: `data` and `fields` outlive it.
  PageRequest(const Dataset& data, const std::optional<std::vector<std::string>>& fields)
      : data_(data), fields_(fields) {}

  /// Asks for these samples' bytes, those that lie near each other together. What cannot be asked
  /// for is left to whoever reads it, who then sees what is wrong with it. Errors: OutOfRange.
  /// Cost: about a microsecond a range that is there already; else what it takes to begin reading.
  /// @return  the bytes that were asked for.
  std::uint64_t send(std::span<const std::uint64_t> samples);

 private:
  /// Bytes of a shard.
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  [[nodiscard]] ShardHandle<OpenShard> open(std::uint64_t shard, bool may_open) const;
  void add_ranges(const OpenShard& shard, std::uint64_t number);
  [[nodiscard]] std::uint64_t send_ranges(const OpenShard& shard);

  const Dataset& data_;
  const std::optional<std::vector<std::string>>& fields_;
  std::vector<std::uint64_t> numbers_;  // of the samples, in the index
  std::vector<std::uint32_t> wanted_;   // fields_ by their numbers in a shard
  std::vector<Range> ranges_;           // of a shard
};

}  // namespace shardwise::detail
