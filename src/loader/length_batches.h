#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loader/engine.h"
#include "loader/epoch_plan.h"
#include "loader/packing.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

inline constexpr unsigned kLengthBatchesVersion = 1;

/// Returns the batches of one window. Samples are numbers in the window, from 0.
///
/// A pure function of its arguments, specified by docs/formats/length-batches.md.
/// @param lengths   of the window's samples.
/// @param max_rows  limit of samples in a batch.
/// @param max_tokens  limit of rows * longest length in a batch; 0 means no limit.
/// @param seed, epoch, window  key of the random order of the batches.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> length_batches(
    std::span<const std::uint64_t> lengths, std::uint64_t max_rows, std::uint64_t max_tokens,
    std::uint64_t seed, std::uint64_t epoch, std::uint64_t window);

/// The lengths of a data set's samples. Immutable; safe from any thread.
class SampleLengths {
 public:
  /// Errors: NotFound (no such column); InvalidArgument if the rule names neither or both of field
  /// and column, or if a number in the column is not a length.
  SampleLengths(const MixedDataset& data, const Loader::ByLength& rule);

  /// Sets lengths[i] to the length of samples[i]. Cost: a look-up in the index per sample.
  void of(std::span<const std::uint64_t> samples, std::span<std::uint64_t> lengths) const;
  /// Returns a text for tokens. Different lengths have different texts.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  std::uint64_t unit_ = 1;
  std::vector<std::uint64_t> numbers_;  // of a column; empty if lengths are those of fields
  std::vector<std::string> fields_;
  std::vector<FieldSizes> sizes_;  // of each part; for lengths of fields
  std::vector<std::uint64_t> first_;
};

/// The batches by length of all ranks, from a point of an epoch to its end.
///
/// Memory: 8 bytes per window, plus the content of one window.
/// Cost: with max_tokens or packing, the constructor makes each window's batches once. Without them
/// it makes none.
/// Threads: one; copy the object for another thread.
class LengthBatches {
 public:
  using Point = EpochPlan::Point;

  /// @param kept  the samples that are delivered in the epoch; must outlive this object.
  /// @param whole  order of the same epoch for one rank, without a skip list.
  /// @param begin  where to begin; its position must be the beginning of a window.
  /// Errors: Mismatch if the epoch has no such point.
  LengthBatches(std::shared_ptr<const SampleLengths> lengths, const Loader::ByLength& rule,
                std::uint64_t batch_size, const Sampler& kept, std::shared_ptr<const Sampler> whole,
                Point begin);

  /// Number of batches from `begin` to the end of the epoch.
  [[nodiscard]] std::uint64_t size() const noexcept { return first_.back() - begin_.batches; }
  /// Returns the point after `number` batches. REQUIRES: number <= size().
  [[nodiscard]] Point point_after(std::uint64_t number) const noexcept;
  /// Returns the samples of a batch, without those left out. REQUIRES: number < size().
  [[nodiscard]] BatchPlan batch(std::uint64_t number) {
    return from_first(begin_.batches + number);
  }
  /// Number of samples in the batches of the first window that precede `begin`.
  [[nodiscard]] std::uint64_t delivered_before();

 private:
  struct Window {
    std::uint64_t number = ~std::uint64_t{0};
    std::vector<std::uint64_t> samples;  // by position in the window, including samples that are
                                         // left out
    std::vector<std::uint64_t> lengths;
    std::vector<std::vector<std::uint32_t>> batches;
    std::vector<std::vector<std::uint64_t>> starts;  // packed batches only
  };

  [[nodiscard]] std::uint64_t position_of(std::uint64_t window) const noexcept {
    return begin_.position + window * window_size_;
  }
  [[nodiscard]] std::uint64_t rows_of(std::uint64_t window) const noexcept;
  /// Returns the window of a batch. Batches are numbered from the first one of the first window.
  [[nodiscard]] std::uint64_t window_of(std::uint64_t batch) const noexcept;
  [[nodiscard]] BatchPlan from_first(std::uint64_t batch);
  void load(std::uint64_t window);
  void pack(std::uint64_t window);

  std::shared_ptr<const SampleLengths> lengths_;
  std::uint64_t window_size_;
  std::uint64_t max_rows_;
  std::uint64_t max_tokens_;
  std::uint64_t pack_to_;
  const Sampler& kept_;
  std::shared_ptr<const Sampler> whole_;
  Point begin_;
  std::vector<std::uint64_t> first_;  // number of each window's first batch, from begin_ on; then
                                      // the total
  Window window_;                     // the last window loaded
};

}  // namespace shardwise::detail
