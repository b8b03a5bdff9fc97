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

/// Asks the kernel to read samples' bytes into the page cache, without waiting for them.
///
/// Works on mapped shards. A local shard is opened for it, if few other shards are needed at the
/// same time. A shard in a ShardCache is not opened, and nothing is ever fetched.
/// Threads: one.
class SHARDWISE_EXPORT PageRequest {
 public:
  /// @param fields  the fields that will be read; nullopt means all.
  /// REQUIRES: `data` and `fields` outlive it.
  PageRequest(const Dataset& data, const std::optional<std::vector<std::string>>& fields)
      : data_(data), fields_(fields) {}

  /// Requests these samples' bytes, merging nearby ranges. Failed requests are ignored: the reader
  /// of the sample gets the error.
  /// @return  the number of bytes requested.
  /// Errors: OutOfRange.
  /// Cost: a system call a range.
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
  std::vector<std::uint32_t> wanted_;   // numbers of fields_ in a shard
  std::vector<Range> ranges_;           // of a shard
};

}  // namespace shardwise::detail
