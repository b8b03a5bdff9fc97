#pragma once

#include <cstdint>

#include "shardwise/order/resume.h"
#include "shardwise/order/sampler.h"

namespace shardwise::python {

/// How a rank's samples are grouped into batches.
struct BatchRule {
  std::uint64_t size = 1;  ///< samples per batch
  bool drop_last = false;  ///< omit the last batch if it is smaller
  /// Gives all ranks the same number of batches, even if some ranks have one sample more.
  bool even = false;
};

/// Throws InvalidArgument if, from each rank's sample `first` on, the ranks have different numbers
/// of batches.
void require_same_count(const Sampler& sampler, const BatchRule& rule, std::uint64_t first);

/// The batches of a rank, from a sample of its sampler to the end of the epoch.
class BatchPlan {
 public:
  /// A plan without batches.
  BatchPlan() = default;
  /// @param first  number of the rank's sample that begins the first batch; must be 0 with `even`.
  /// Cost: with `even`, makes samplers for two other ranks. In the order of wids, makes samplers
  /// for all ranks.
  /// Errors: InvalidArgument if the size is 0, or if the numbers of batches cannot be made equal.
  BatchPlan(const Sampler& sampler, const BatchRule& rule, std::uint64_t first = 0);

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Returns the number of samples in the batch that begins at this rank's sample `position`.
  /// Returns 0 at the end.
  [[nodiscard]] std::uint64_t size_at(std::uint64_t position) const noexcept;
  /// Whether this rank's sample `position` begins a batch, or is the end of the last batch.
  [[nodiscard]] bool has_border_at(std::uint64_t position) const noexcept {
    return position >= end_ || position_after(batches_before(position)) == position;
  }
  /// Returns the number of batches before this rank's sample `position`.
  [[nodiscard]] std::uint64_t batches_before(std::uint64_t position) const noexcept;
  /// Returns the number of this rank's first sample after `num_batches` batches.
  [[nodiscard]] std::uint64_t position_after(std::uint64_t num_batches) const noexcept;
  /// Returns a token for the end of the epoch.
  [[nodiscard]] static ResumeToken token_at_end(const Sampler& sampler);
  /// Returns the token of the point at which every rank has taken `num_batches` batches, or all its
  /// batches if it has fewer.
  /// Errors: InvalidArgument if the order is wids or balances bytes, and the point precedes a last
  /// step that `even` has changed.
  [[nodiscard]] ResumeToken token_after(const Sampler& sampler, std::uint64_t num_batches) const;

 private:
  /// Returns the largest number of batches that a rank has.
  [[nodiscard]] std::uint64_t most_batches(const Sampler& sampler) const;

  BatchRule rule_;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;  ///< this rank's first sample after all batches
  std::uint64_t count_ = 0;
  bool splits_ = false;      ///< this rank splits its last full batch into size - 1 samples and one
                             ///< sample
  bool any_splits_ = false;  ///< some rank splits its last full batch
};

}  // namespace shardwise::python
