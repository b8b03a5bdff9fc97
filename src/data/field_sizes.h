#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/checked_segments.h"
#include "shardwise/base/export.h"
#include "shardwise/data/dataset.h"

namespace shardwise::detail {

/// Returns the sizes of samples' keys and fields from a dataset's index, without opening shards. If
/// there is no index (Dataset::open_lazily), opens the samples' shards one after another. In a
/// join, a field's size comes from the index of the dataset that has the field.
/// Threads: safe concurrently.
class SHARDWISE_EXPORT FieldSizes {
 public:
  explicit FieldSizes(Dataset data);
  ~FieldSizes();
  FieldSizes(FieldSizes&&) noexcept;

  /// True if any shard has one of the fields `names`.
  /// Errors: CorruptIndex; Unsupported without an index.
  /// Cost: O(shards); stops at the first shard that has such a field.
  [[nodiscard]] bool has_any(std::span<const std::string> names) const;

  /// Sets sizes[i] to the size of the first of the fields `names` that samples[i] has; 0 if it has
  /// none of them.
  /// Errors: OutOfRange; CorruptIndex; without an index as Dataset::operator[].
  /// Cost: O(samples); without an index as Dataset::samples().
  void of(std::span<const std::uint64_t> samples, std::span<const std::string> names,
          std::span<std::uint64_t> sizes) const;
  /// Sets sizes[i] to the size of the key of samples[i]. Errors and cost: as of().
  void of_keys(std::span<const std::uint64_t> samples, std::span<std::uint64_t> sizes) const;

 private:
  class Shards;
  struct Side;
  static constexpr std::uint64_t kAbsent = ~std::uint64_t{0};  // size of a field that is missing

  void find(std::span<const std::uint64_t> samples, std::span<const std::string> names,
            std::span<std::uint64_t> sizes) const;
  void find_own(std::span<const std::uint64_t> samples, std::span<const std::string> names,
                std::span<std::uint64_t> sizes) const;

  template <class SizeOf>
  void walk(std::span<const std::uint64_t> samples, std::span<const std::string> names,
            std::span<std::uint64_t> sizes, SizeOf&& size_of) const;
  template <class SizeOf>
  void read(std::span<const std::uint64_t> samples, std::span<std::uint64_t> sizes,
            SizeOf&& size_of) const;

  const Dataset data_;
  const std::shared_ptr<CheckedSegments> segments_;  // null if there is no index
  std::vector<Side> sides_;                          // of a join
};

}  // namespace shardwise::detail
