#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "data/range_reader.h"
#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"
#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// Reads samples that are fetched by ranges, and fetches coming samples together with them.
///
/// Lifetime: holds the bytes of up to kMaxBytes of coming samples.
/// Threads: one.
class SHARDWISE_EXPORT RangeAhead {
 public:
  /// Limits for the samples that are fetched together.
  static constexpr std::size_t kMaxSamples = 512;
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;

  /// REQUIRES: `data` outlives this object.
  /// @param in_parts  see RangeReader::read().
  explicit RangeAhead(const Dataset& data, std::vector<std::string> in_parts = {})
      : data_(data), in_parts_(std::move(in_parts)) {}

  /// Returns the first of these samples; nullopt if its shard is not read by ranges, or if it did
  /// not arrive with the others. In these cases the caller uses Dataset::operator[], which reads
  /// the sample or throws the error.
  /// @param coming  numbers of the samples that will be read, in this order; not empty.
  /// Errors: Cancelled.
  std::optional<Sample> take(std::span<const std::uint64_t> coming);

 private:
  /// Returns the samples to fetch, without repetitions.
  [[nodiscard]] std::vector<RangedSample> plan(std::span<const std::uint64_t> coming);
  void fetch(std::span<const std::uint64_t> coming);

  const Dataset& data_;
  const std::vector<std::string> in_parts_;
  // Samples that have arrived, and samples that were requested at the last fetch; by their numbers
  // in the index.
  std::unordered_map<std::uint64_t, Sample> arrived_;
  std::unordered_set<std::uint64_t> requested_;
};

}  // namespace shardwise::detail
