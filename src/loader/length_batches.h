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

/// The batches of one window: numbers of its samples, from 0, batch after batch.
///
/// A pure function of its arguments, specified by docs/formats/length-batches.md.
/// @param lengths   of the window's samples.
/// @param max_rows  samples in a batch at most.
/// @param max_tokens  0: as many as max_rows.
/// @param seed, epoch, window  the key of the order of the batches.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> length_batches(
    std::span<const std::uint64_t> lengths, std::uint64_t max_rows, std::uint64_t max_tokens,
    std::uint64_t seed, std::uint64_t epoch, std::uint64_t window);

/// How long the samples of a data set are. Immutable; safe from any thread.
class SampleLengths {
 public:
  /// Errors: NotFound (no such column); InvalidArgument if the rule names not just one of field and
  /// column, or a number in the column is no length.
  SampleLengths(const MixedDataset& data, const Loader::ByLength& rule);

  /// lengths[i] = that of samples[i]. Cost: a look-up in the index.
  void of(std::span<const std::uint64_t> samples, std::span<std::uint64_t> lengths) const;
  /// Which lengths these are, for a token.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  std::uint64_t unit_ = 1;
  std::vector<std::uint64_t> numbers_;  // of a column
  std::vector<std::string> fields_;
  std::vector<FieldSizes> sizes_;  // of each part
  std::vector<std::uint64_t> first_;
};

/// The rest of an epoch from a point on, as batches by length, over all ranks.
///
/// Memory: 8 bytes a window, and one window. Cost of making it: with a budget of tokens, or packed,
/// every window is made once; otherwise nothing.
/// Threads: one. A copy serves another thread.
class LengthBatches {
 public:
  using Point = EpochPlan::Point;

  /// @param kept  what is delivered, in the epoch: it outlives the batches.
  /// @param whole  the same order with nothing left out, in the same epoch, for one rank.
  /// @param begin  where to begin: at the beginning of a window.
  /// Errors: Mismatch if there is no such point.
  LengthBatches(std::shared_ptr<const SampleLengths> lengths, const Loader::ByLength& rule,
                std::uint64_t batch_size, const Sampler& kept, std::shared_ptr<const Sampler> whole,
                Point begin);

  /// Batches from the beginning to the end of the epoch.
  [[nodiscard]] std::uint64_t size() const noexcept { return first_.back() - begin_.batches; }
  /// Where `number` batches end. REQUIRES: number <= size().
  [[nodiscard]] Point point_after(std::uint64_t number) const noexcept;
  /// The samples of a batch, less those that are left out. REQUIRES: number < size().
  [[nodiscard]] BatchPlan batch(std::uint64_t number) {
    return from_first(begin_.batches + number);
  }
  /// The samples in the batches of the first window that come before the beginning.
  [[nodiscard]] std::uint64_t delivered_before();

 private:
  struct Window {
    std::uint64_t number = ~std::uint64_t{0};
    std::vector<std::uint64_t> samples;  // by position, also those that are left out
    std::vector<std::uint64_t> lengths;
    std::vector<std::vector<std::uint32_t>> batches;
    std::vector<std::vector<std::uint64_t>> starts;  // of packed ones
  };

  [[nodiscard]] std::uint64_t position_of(std::uint64_t window) const noexcept {
    return begin_.position + window * window_size_;
  }
  [[nodiscard]] std::uint64_t rows_of(std::uint64_t window) const noexcept;
  /// The window of a batch, which is counted from the first batch of the first window.
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
  std::vector<std::uint64_t> first_;  // of each window from begin_ on, its first batch; then all
  Window window_;                     // that was looked at last
};

}  // namespace shardwise::detail
