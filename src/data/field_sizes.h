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

/// Where the bytes of a sample's field are.
struct FieldPlace {
  static constexpr std::uint64_t kAbsent = ~std::uint64_t{0};
  static constexpr std::uint32_t kUnknown = ~std::uint32_t{0};

  [[nodiscard]] std::uint64_t size_or_zero() const noexcept {
    return size_bytes == kAbsent ? 0 : size_bytes;
  }

  std::uint64_t size_bytes = kAbsent;  ///< kAbsent if the sample lacks the field
  std::uint64_t offset = 0;            ///< in the shard
  std::uint32_t shard = 0;
  /// 0 for a field of the dataset itself, i for a field of its i-th joined dataset, kUnknown if
  /// only the size is known.
  std::uint32_t source = kUnknown;
};

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
  /// Sets places[i] to the place of the first of the fields `names` that samples[i] has. Errors and
  /// cost: as of().
  void find(std::span<const std::uint64_t> samples, std::span<const std::string> names,
            std::span<FieldPlace> places) const;
  /// Sets sizes[i] to the size of the key of samples[i]. Errors and cost: as of().
  void of_keys(std::span<const std::uint64_t> samples, std::span<std::uint64_t> sizes) const;

 private:
  class Shards;
  struct Side;

  void find_own(std::span<const std::uint64_t> samples, std::span<const std::string> names,
                std::span<FieldPlace> places) const;
  template <class Found, class Find>
  void walk(std::span<const std::uint64_t> samples, std::span<const std::string> names,
            std::span<Found> found, const Find& find) const;

  const Dataset data_;
  const std::shared_ptr<CheckedSegments> segments_;  // null if there is no index
  std::vector<Side> sides_;                          // the joined datasets; may be empty
};

}  // namespace shardwise::detail
