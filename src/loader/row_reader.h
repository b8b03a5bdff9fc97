#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "data/sample_cursor.h"
#include "shardwise/data/mixed_dataset.h"

namespace shardwise::detail {

/// Reads the samples of some rows of a batch, one after another.
class RowReader {
 public:
  RowReader(const MixedDataset& data, std::span<const std::uint64_t> samples)
      : data_(data), samples_(samples) {
    if (data.num_parts() == 1) cursor_.emplace(data.part(0), samples);
  }

  /// Returns the next samples, one or more, valid until the next call. If it throws, the error
  /// concerns only the next sample, which is then skipped. REQUIRES: not all were read.
  std::span<const Sample> next_run() {
    if (cursor_) return cursor_->next_run();
    const std::uint64_t number = samples_[at_++];
    part_ = data_.part_of(number);
    const Sample& sample = sample_.emplace(data_.part(part_)[number - data_.first_sample(part_)]);
    return {&sample, 1};
  }
  /// The number of the first sample of the data set that the last run is from.
  [[nodiscard]] std::uint64_t first_of_part() const noexcept { return data_.first_sample(part_); }

 private:
  const MixedDataset& data_;
  const std::span<const std::uint64_t> samples_;
  std::optional<SampleCursor> cursor_;  // of a single data set
  std::size_t at_ = 0;                  // of a mixture
  std::optional<Sample> sample_;        // of a mixture
  std::size_t part_ = 0;
};

}  // namespace shardwise::detail
