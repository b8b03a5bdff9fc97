#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace shardwise::order_detail {

/// Deals the samples of a step to ranks so that all get as many samples and nearly as many bytes.
///
/// A pure function of the step, the world and the sizes, in integers: every rank computes the same,
/// and picks its own. Tests hold golden vectors of it, and kVersion would change with it.
///
/// Version 2. n samples of a step, in slots 0 ... n-1, are dealt to `world` ranks. Rank r gets
/// n / world + (r < n mod world) of them. So only P = min(world, n) ranks, the first, take part.
///
///  Sizes   are scaled to 32 bits: size'(i) = size(i) >> max(0, bit_width(largest size) - 32).
///
///  Order   Samples are sorted into classes of sizes, 16 to each power of two: with x = size' + 1
///          and 2^e <= x < 2^(e+1), the class is 16 * e + floor(16 * (x - 2^e) / 2^e). They are
///          dealt from the highest class down; in a class, from the lowest slot up.
///
///  Waves   All loads are 0. Wave k = 0, 1, 2 ... goes through those ranks that have not got all
///          their samples, in the order of (rank - step) mod P, up if k is even, down if it is odd.
///          With s the size' of the sample that is next when the wave begins, and
///
///              limit = (least load of those ranks) + max(s, floor(sum of all size' / P / 1024)),
///
///          each of them whose load was at most `limit` when the wave began gets the next sample,
///          and its size' is added to the rank's load. Waves end when all samples are dealt.
///
/// Why: this is the longest-processing-time rule (the next largest to the least loaded), but a pass
/// over the ranks at a time instead of a queue. A rank above the limit waits, since the least
/// loaded one takes the next sample and is then still not above; so who got a huge sample gets none
/// until all others are level with it, and at the end, as the numbers of samples must be equal, the
/// smallest. The direction alternates since the first of a wave get its larger samples. The second
/// term of the limit keeps waves from being thin where sizes no longer matter: beside a sample that
/// is a thousand times as large as all others together, those are dealt evenly only by number.
///
/// Quality: with log-normal sizes (sigma 1), the largest sum of bytes over the mean one is 1.007 on
/// average for 8 ranks of 32 samples, and 1.03 for 64 of 32. (There it is the largest sample that
/// decides.) One thread; buffers are kept from step to step.
class Dealer {
 public:
  static constexpr unsigned kVersion = 2;

  /// REQUIRES: world > 0.
  explicit Dealer(std::uint64_t world) : world_(world) {}

  /// ranks[i] = who gets the sample in slot i of this step, of sizes[i] bytes.
  /// REQUIRES: as many ranks as sizes, at most 2^31.
  /// Cost: about 7 ns a sample; up to three times as much where sizes differ by magnitudes.
  void deal(std::uint64_t step, std::span<const std::uint64_t> sizes,
            std::span<std::uint32_t> ranks);

  /// Puts the slots that deal() gives to `rank` into `slots`, ascending. The rest as deal().
  void slots_of(std::uint64_t rank, std::uint64_t step, std::span<const std::uint64_t> sizes,
                std::vector<std::uint32_t>& slots);

 private:
  static constexpr std::size_t kNumClasses = 16 * 32 + 1;

  struct Rank {
    std::uint64_t load;
    std::uint32_t left;  ///< samples that it is still to get
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
  std::vector<Rank> waiting_;           ///< for more samples, in the order of waves
  std::vector<std::uint32_t> dealt_;    ///< who gets each of sorted_, and one to scribble on
  std::array<std::uint32_t, kNumClasses> counts_{};
};

}  // namespace shardwise::order_detail
