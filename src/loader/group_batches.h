#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loader/engine.h"
#include "loader/epoch_plan.h"
#include "loader/packing.h"
#include "loader/sample_groups.h"
#include "shardwise/data/mixed_dataset.h"
#include "shardwise/loader/loader.h"
#include "shardwise/order/sampler.h"

namespace shardwise::detail {

inline constexpr unsigned kGroupBatchesVersion = 1;

/// The samples of a window, with those that were held over to it before them, by position.
struct WindowSamples {
  std::vector<std::uint64_t> positions;
  std::vector<std::uint64_t> samples;  ///< includes samples that are left out
  std::vector<std::uint64_t> lengths;  ///< 0 in batches that are not by length
  std::vector<std::uint16_t> groups;   ///< 0 in batches that are not by group

  [[nodiscard]] std::size_t size() const noexcept { return samples.size(); }
  void resize(std::size_t size);
  /// Returns some of the samples.
  [[nodiscard]] WindowSamples only(std::span<const std::uint32_t> places) const;
};

/// How samples are cut into batches.
struct BatchLimits {
  std::vector<std::uint64_t> max_rows;  ///< limit of samples in a batch, by group
  std::uint64_t max_tokens = 0;  ///< limit of rows * longest length in a batch; 0 means no limit
};

/// The batches of one window. Samples are their places in WindowSamples.
struct WindowBatches {
  std::vector<std::vector<std::uint32_t>> batches;
  std::vector<std::uint32_t> held_over;  ///< ascending
};

/// Returns the batches of one window.
///
/// A pure function of its arguments, specified by docs/formats/length-batches.md.
/// @param hold_over  whether the last batch of each group is held over if it is not full.
/// @param seed, epoch, window  key of the random order of the batches.
[[nodiscard]] WindowBatches group_batches(const WindowSamples& samples, const BatchLimits& limits,
                                          bool hold_over, std::uint64_t seed, std::uint64_t epoch,
                                          std::uint64_t window);

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
  std::vector<std::uint64_t> numbers_;  // values of the column; empty if fields are used
  std::vector<std::string> fields_;
  std::vector<FieldSizes> sizes_;  // one per part; used if the lengths are those of fields
  std::vector<std::uint64_t> first_;
};

/// The rule by which samples are put into batches: by group, by length, or both. Immutable; safe
/// from any thread.
struct BatchRule {
  /// Errors: those of SampleLengths and SampleGroups.
  BatchRule(const MixedDataset& data, const Loader::Options& options);

  std::optional<SampleLengths> lengths;
  std::optional<SampleGroups> groups;
  BatchLimits limits;
  std::uint64_t window = 0;   ///< positions per window
  std::uint64_t pack_to = 0;  ///< see Loader::ByLength
  bool holds_over = false;
  std::string text;  ///< for tokens; equal texts mean equal batches
};

/// The batches by group or by length of all ranks, from a point of an epoch to its end.
///
/// Memory: 8 bytes per window, plus the content of one window.
/// Cost: the constructor makes each window's batches once, but not if all batches of a rule have
///   the same number of samples. If samples are held over, it makes those of the windows before
///   `begin` too.
/// Threads: one; copy the object for another thread.
class GroupBatches {
 public:
  using Point = EpochPlan::Point;

  /// @param kept  the samples that are delivered in the epoch; must outlive this object.
  /// @param whole  order of the same epoch for one rank, without a skip list.
  /// @param begin  where to begin; its position must be the beginning of a window.
  /// Errors: Mismatch if the epoch has no such point.
  GroupBatches(std::shared_ptr<const BatchRule> rule, const Sampler& kept,
               std::shared_ptr<const Sampler> whole, Point begin);

  /// Number of batches from `begin` to the end of the epoch.
  [[nodiscard]] std::uint64_t size() const noexcept { return first_.back() - begin_.batches; }
  /// Returns the point after `number` batches. REQUIRES: number <= size().
  [[nodiscard]] Point point_after(std::uint64_t number) const noexcept;
  /// Returns the samples of a batch, without those left out. REQUIRES: number < size().
  /// Cost: if samples are held over, a step back to an earlier window begins at `begin` again.
  [[nodiscard]] BatchPlan batch(std::uint64_t number) {
    return from_first(begin_.batches + number);
  }
  /// Number of samples in all batches of the epoch that precede `begin`.
  [[nodiscard]] std::uint64_t delivered_before();

 private:
  struct Window {
    std::uint64_t number = ~std::uint64_t{0};
    WindowSamples content;
    std::vector<std::vector<std::uint32_t>> batches;
    std::vector<std::vector<std::uint64_t>> starts;  // packed batches only
    WindowSamples held_over;
  };

  [[nodiscard]] std::uint64_t rows_of(std::uint64_t window) const noexcept;
  [[nodiscard]] bool is_kept(std::uint64_t position) const;
  /// Returns the window of a batch. Batches are numbered from the first one of the first window.
  [[nodiscard]] std::uint64_t window_of(std::uint64_t batch) const noexcept;
  [[nodiscard]] BatchPlan from_first(std::uint64_t batch);
  void load(std::uint64_t window);
  void make(std::uint64_t window, WindowSamples held_over);
  void pack(std::uint64_t window);

  std::shared_ptr<const BatchRule> rule_;
  const Sampler& kept_;
  std::shared_ptr<const Sampler> whole_;
  Point begin_;
  std::uint64_t num_windows_;   // of the epoch
  std::uint64_t first_window_;  // the window of begin_, and what was held over to it
  WindowSamples held_at_first_;
  std::vector<std::uint64_t> first_;  // number of each window's first batch, from begin_ on; then
                                      // the total
  Window window_;                     // the last window loaded
};

}  // namespace shardwise::detail
