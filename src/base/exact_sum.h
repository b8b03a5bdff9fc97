#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// A sum of doubles without rounding. The result does not depend on the order of the values, or on
/// how they are distributed over several sums. Only value() rounds, to the nearest double.
///
/// The sum is a fixed-point number wide enough for every double (Kulisch's accumulator). Its words
/// can be added, as integers, to the words of other sums. Infinities and NaNs are counted.
/// Limits: at most 2^62 values.
/// Threads: one.
/// Cost: O(1) per value; 568 bytes.
class SHARDWISE_EXPORT ExactSum {
 public:
  static constexpr std::size_t kNumWords = 70;
  using Words = std::array<std::int64_t, kNumWords>;

  void add(double value) noexcept;
  /// Returns the words of this sum. Element-wise sums of such words are the words of the combined
  /// sum.
  [[nodiscard]] Words words() const noexcept;
  /// REQUIRES: `words` is the element-wise sum of the words() of fewer than 2^30 sums.
  void set_words(const Words& words) noexcept;

  /// Returns the sum rounded to the nearest double, ties to even. Beyond the range of double it is
  /// infinite. It is NaN if a value was NaN, or if infinities of both signs were added.
  [[nodiscard]] double value() const noexcept;

 private:
  void carry() noexcept;

  // Word i has the weight 2^(32 i - 1074). The last three words count NaNs, positive infinities and
  // negative infinities.
  Words words_{};
  std::uint32_t since_carry_ = 0;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::ExactSum;
}  // namespace shardwise
