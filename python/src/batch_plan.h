#pragma once

#include <cstdint>

#include "shardwise/order/resume.h"
#include "shardwise/order/sampler.h"

namespace shardwise::python {

/// How a rank's samples are grouped into batches.
struct BatchRule {
  std::uint64_t size = 1;  ///< samples per batch
  bool drop_last = false;  ///< omit a smaller last batch
  /// Gives all ranks the same number of batches, even if one rank has a sample more than another.
  bool even = false;
};

/// Checks that all ranks have the same number of batches, from each rank's sample `first` on.
/// Errors: InvalidArgument if one rank would have more batches than another.
void require_same_count(const Sampler& sampler, const BatchRule& rule, std::uint64_t first);

/// A rank's batches, from the start of its sampler or a later sample to the end of the epoch.
class BatchPlan {
 public:
  /// A plan without batches.
  BatchPlan() = default;
  /// @param first  the rank's sample with which the first batch begins; must be 0 with `even`.
  /// Cost: with `even`, makes samplers for two other ranks, or for all ranks with wids.
  /// Errors: InvalidArgument if the size is 0, or the batches cannot be made even.
  BatchPlan(const Sampler& sampler, const BatchRule& rule, std::uint64_t first = 0);

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Returns the number of samples in the batch that begins at this rank's sample `position`; 0 at
  /// the end.
  [[nodiscard]] std::uint64_t size_at(std::uint64_t position) const noexcept;
  /// True if a batch begins at this rank's sample `position`, or the last one ends before it.
  [[nodiscard]] bool has_border_at(std::uint64_t position) const noexcept {
    return position >= end_ || position_after(batches_before(position)) == position;
  }
  /// Returns the number of batches before this rank's sample `position`.
  [[nodiscard]] std::uint64_t batches_before(std::uint64_t position) const noexcept;
  /// Returns this rank's first sample after its first `num_batches` batches.
  [[nodiscard]] std::uint64_t position_after(std::uint64_t num_batches) const noexcept;
  /// Returns a token for the end of the epoch.
  [[nodiscard]] static ResumeToken token_at_end(const Sampler& sampler);
  /// Returns a token for `num_batches` batches of every rank, or all batches of a rank that has
  /// fewer.
  /// Errors: InvalidArgument before a last step that was made even, if the order is wids or
  ///   balances bytes.
  [[nodiscard]] ResumeToken token_after(const Sampler& sampler, std::uint64_t num_batches) const;

 private:
  /// Returns the number of batches of the rank with the most.
  [[nodiscard]] std::uint64_t most_batches(const Sampler& sampler) const;

  BatchRule rule_;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;  ///< this rank's first sample after all batches
  std::uint64_t count_ = 0;
  bool splits_ = false;      ///< split this rank's last full batch into size - 1 samples and one
  bool any_splits_ = false;  ///< some rank splits its last full batch
};

}  // namespace shardwise::python
