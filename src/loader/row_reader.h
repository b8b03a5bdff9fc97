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

  /// Returns the next samples, at least one, valid until the next call. If it throws, the error
  /// concerns the next sample only, and the reader skips that sample. REQUIRES: samples are left.
  std::span<const Sample> next_run() {
    if (cursor_) return cursor_->next_run();
    const std::uint64_t number = samples_[at_++];
    part_ = data_.part_of(number);
    const Sample& sample = sample_.emplace(data_.part(part_)[number - data_.first_sample(part_)]);
    return {&sample, 1};
  }
  /// Number of the first sample of the data set from which the last run was read.
  [[nodiscard]] std::uint64_t first_of_part() const noexcept { return data_.first_sample(part_); }

 private:
  const MixedDataset& data_;
  const std::span<const std::uint64_t> samples_;
  std::optional<SampleCursor> cursor_;  // used for a single data set
  std::size_t at_ = 0;                  // used for a mixture
  std::optional<Sample> sample_;        // used for a mixture
  std::size_t part_ = 0;
};

}  // namespace shardwise::detail
