#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.h"

namespace shardwise::detail {

/// Deals the samples of a step to ranks: equal numbers of samples, and nearly equal bytes.
///
/// A pure function of the step, the world and the sizes, in integers: every rank computes the same
/// deal, and picks its part. Tests hold golden vectors, and kVersion changes with them.
///
/// Quality: for log-normal sizes (sigma 1) and 32 samples per rank, the largest sum of bytes over
/// the mean is on average 1.007 for 8 ranks. It is 1.03 for 64 ranks, where the largest sample
/// decides.
/// Threads: one; buffers are kept from step to step.
/// Source: docs/formats/order.md (Balanced bytes, version 2), with reasons.
class Dealer {
 public:
  static constexpr unsigned kVersion = 2;

  /// REQUIRES: world > 0.
  explicit Dealer(std::uint64_t world) : world_(world) { SHARDWISE_ASSERT(world > 0); }

  /// Sets ranks[i] to the rank that gets the sample in slot i of this step, of sizes[i] bytes.
  /// REQUIRES: as many ranks as sizes, at most 2^31.
  /// Cost: O(samples); higher where sizes differ by magnitudes.
  void deal(std::uint64_t step, std::span<const std::uint64_t> sizes,
            std::span<std::uint32_t> ranks);

  /// Puts the slots that deal() gives to `rank` into `slots`, ascending. Otherwise like deal().
  void slots_of(std::uint64_t rank, std::uint64_t step, std::span<const std::uint64_t> sizes,
                std::vector<std::uint32_t>& slots);

 private:
  static constexpr std::size_t kNumClasses = 16 * 32 + 1;

  struct Rank {
    std::uint64_t load;
    std::uint32_t left;  ///< samples that it still needs
    std::uint32_t rank;
  };

  /// Counts samples by class, with sizes shifted by `shift`. Returns all bits of all sizes.
  std::uint64_t classify(std::span<const std::uint64_t> sizes, unsigned shift);
  void sort(std::span<const std::uint64_t> sizes);
  void deal_waves(std::uint64_t step);

  std::uint64_t world_;
  std::uint64_t total_ = 0;             ///< the sum of all scaled sizes
  std::vector<std::uint16_t> classes_;  ///< by slot
  std::vector<std::uint64_t> sorted_;   ///< (scaled size, slot), in the order of dealing
  std::vector<Rank> waiting_;           ///< ranks that need more samples, in the order of waves
  std::vector<std::uint32_t> dealt_;    ///< the rank of each of sorted_, and one spare place
  std::array<std::uint32_t, kNumClasses> counts_{};
};

}  // namespace shardwise::detail
