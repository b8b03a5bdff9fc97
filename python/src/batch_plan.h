#pragma once

#include <cstdint>

#include "shardwise/order/resume.h"
#include "shardwise/order/sampler.h"

namespace shardwise::python {

/// How a rank's samples are put into batches.
struct BatchRule {
  std::uint64_t size = 1;  ///< samples of a batch
  bool drop_last = false;  ///< a batch that would be smaller is left out
  /// All ranks have the same number of batches, though one may have a sample more than another.
  bool even = false;
};

/// Checks batches that nothing makes even, from each rank's sample `first` on.
/// Errors: InvalidArgument if one rank would have more of them than another.
void require_same_count(const Sampler& sampler, const BatchRule& rule, std::uint64_t first);

/// A rank's batches, from where its sampler began to the end of the epoch, or from a later sample.
class BatchPlan {
 public:
  /// No batches.
  BatchPlan() = default;
  /// @param first  the rank's sample with which the first batch begins; not 0 with `even`.
  /// Cost: with `even` that of a sampler for another rank, or with wids for each of them.
  /// Errors: InvalidArgument if the size is 0, or no rule makes the batches even.
  BatchPlan(const Sampler& sampler, const BatchRule& rule, std::uint64_t first = 0);

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Samples of the batch that begins with this rank's sample `position`; 0 at the end.
  [[nodiscard]] std::uint64_t size_at(std::uint64_t position) const noexcept;
  /// Whether a batch begins with this rank's sample `position`, or the last one ends before it.
  [[nodiscard]] bool has_border_at(std::uint64_t position) const noexcept {
    return position >= end_ || position_after(batches_before(position)) == position;
  }
  /// How many batches lie before this rank's sample `position`.
  [[nodiscard]] std::uint64_t batches_before(std::uint64_t position) const noexcept;
  /// This rank's first sample that is in none of its first `num_batches` batches.
  [[nodiscard]] std::uint64_t position_after(std::uint64_t num_batches) const noexcept;
  /// A token for the end of the epoch.
  [[nodiscard]] static ResumeToken token_at_end(const Sampler& sampler);
  /// A token for `num_batches` batches of all ranks, or all that a rank has.
  /// Errors: InvalidArgument before the last step, if that was made even and the order is wids, or
  /// bytes are balanced.
  [[nodiscard]] ResumeToken token_after(const Sampler& sampler, std::uint64_t num_batches) const;

 private:
  /// Batches of the rank that has most.
  [[nodiscard]] std::uint64_t most_batches(const Sampler& sampler) const;

  BatchRule rule_;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;  ///< this rank's first sample that is in no batch
  std::uint64_t count_ = 0;
  bool splits_ = false;      ///< this rank's last full batch comes as size - 1 samples and one
  bool any_splits_ = false;  ///< that of some rank does
};

}  // namespace shardwise::python
