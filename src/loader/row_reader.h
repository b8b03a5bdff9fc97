#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset_access.h"
#include "data/range_ahead.h"
#include "data/sample_cursor.h"
#include "shardwise/data/mixed_dataset.h"

namespace shardwise::detail {

/// Reads the samples of some rows of a batch, one after another.
class RowReader {
 public:
  /// @param in_parts  names of fields that the caller reads by SampleAccess::open_field().
  RowReader(const MixedDataset& data, std::span<const std::uint64_t> samples,
            const std::vector<std::string>& in_parts)
      : data_(data), samples_(samples), in_parts_(in_parts) {
    if (data.num_parts() == 1) {
      cursor_.emplace(data.part(0), samples, SampleCursor::kMaxShards, SampleCursor::kAheadBytes,
                      in_parts);
    } else {
      find_ranged_parts();
    }
  }

  /// Returns the next samples, at least one, valid until the next call. If it throws, the error
  /// concerns the next sample only, and the reader skips that sample. REQUIRES: samples are left.
  std::span<const Sample> next_run() {
    if (cursor_) return cursor_->next_run();
    const std::uint64_t number = samples_[at_++];
    part_ = data_.part_of(number);
    RangedPart& ranged = ranged_[part_];
    sample_.reset();
    if (ranged.ahead) {
      sample_ =
          ranged.ahead->take(std::span<const std::uint64_t>(ranged.samples).subspan(ranged.at++));
    }
    if (!sample_) {
      const std::uint64_t in_part = number - data_.first_sample(part_);
      sample_.emplace(DatasetAccess::get(data_.part(part_), in_part, in_parts_));
    }
    return {&*sample_, 1};
  }
  /// Number of the first sample of the data set from which the last run was read.
  [[nodiscard]] std::uint64_t first_of_part() const noexcept { return data_.first_sample(part_); }

 private:
  /// The rows of one data set of a mixture, if it is read by ranges.
  struct RangedPart {
    std::optional<RangeAhead> ahead;
    std::vector<std::uint64_t> samples;
    std::size_t at = 0;
  };

  void find_ranged_parts() {
    ranged_.resize(data_.num_parts());
    bool has_ranged = false;
    for (std::size_t part = 0; part < ranged_.size(); ++part) {
      // Samples of RangeAhead lack the fields of joined datasets.
      if (!DatasetAccess::reads_ranges(data_.part(part)) ||
          !DatasetAccess::joins(data_.part(part)).empty())
        continue;
      ranged_[part].ahead.emplace(data_.part(part), in_parts_);
      has_ranged = true;
    }
    if (!has_ranged) return;
    for (const std::uint64_t number : samples_) {
      const std::size_t part = data_.part_of(number);
      ranged_[part].samples.push_back(number - data_.first_sample(part));
    }
  }

  const MixedDataset& data_;
  const std::span<const std::uint64_t> samples_;
  const std::vector<std::string>& in_parts_;
  std::optional<SampleCursor> cursor_;  // used for a single data set
  std::size_t at_ = 0;                  // used for a mixture
  std::optional<Sample> sample_;        // used for a mixture
  std::vector<RangedPart> ranged_;      // used for a mixture
  std::size_t part_ = 0;
};

}  // namespace shardwise::detail
