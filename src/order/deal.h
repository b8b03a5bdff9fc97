#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.h"

namespace shardwise::detail {

/// Distributes the samples of a step to ranks, so that each rank gets the same number of samples
/// and nearly the same number of bytes.
///
/// The result is a pure function of the step, the number of ranks and the sizes, computed in
/// integers. Every rank therefore computes the same distribution, and uses its part of it. Tests
/// contain golden vectors. If these change, kVersion changes, too.
///
/// Quality: the ratio of the largest sum of bytes of a rank to the mean. For log-normal sizes
/// (sigma 1) and 32 samples per rank, it is on average 1.007 with 8 ranks. With 64 ranks it is
/// 1.03, because of the largest sample.
/// Threads: one. The object reuses its buffers in each step.
/// Source: docs/formats/order.md (Balanced bytes, version 2), with reasons.
class Dealer {
 public:
  static constexpr unsigned kVersion = 2;

  /// REQUIRES: world > 0.
  explicit Dealer(std::uint64_t world) : world_(world) { SHARDWISE_ASSERT(world > 0); }

  /// Sets ranks[i] to the rank that gets the sample in slot i of this step, which has sizes[i]
  /// bytes.
  /// REQUIRES: `ranks` and `sizes` have the same length, at most 2^31.
  /// Cost: O(samples); higher if sizes differ by orders of magnitude.
  void deal(std::uint64_t step, std::span<const std::uint64_t> sizes,
            std::span<std::uint32_t> ranks);

  /// Puts the slots that deal() gives to `rank` into `slots`, ascending. Otherwise like deal().
  void slots_of(std::uint64_t rank, std::uint64_t step, std::span<const std::uint64_t> sizes,
                std::vector<std::uint32_t>& slots);

 private:
  static constexpr std::size_t kNumClasses = 16 * 32 + 1;

  struct Rank {
    std::uint64_t load;
    std::uint32_t left;  ///< number of samples that the rank still needs
    std::uint32_t rank;
  };

  /// Counts the samples of each class, with sizes shifted right by `shift`. Returns the bitwise OR
  /// of all sizes.
  std::uint64_t classify(std::span<const std::uint64_t> sizes, unsigned shift);
  void sort(std::span<const std::uint64_t> sizes);
  void deal_waves(std::uint64_t step);

  std::uint64_t world_;
  std::uint64_t total_ = 0;             ///< the sum of all scaled sizes
  std::vector<std::uint16_t> classes_;  ///< the class of each slot's sample
  std::vector<std::uint64_t> sorted_;   ///< (scaled size, slot), in the order in which samples are
                                        ///< assigned
  std::vector<Rank> waiting_;           ///< ranks that need more samples, in the order of waves
  std::vector<std::uint32_t> dealt_;    ///< the rank of each element of sorted_, and one spare
                                        ///< element
  std::array<std::uint32_t, kNumClasses> counts_{};
};

}  // namespace shardwise::detail
