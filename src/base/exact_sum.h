#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// A sum of doubles without rounding: the same in any order, and however it is split up. Only
/// value() rounds, once, to the nearest double.
///
/// A fixed-point number that is wide enough for every double (Kulisch's accumulator), in words that
/// can be added to those of other sums as integers. Infinities and NaNs are counted. At most 2^62
/// values. One thread. Cost: 3 ns a value, 568 bytes.
class SHARDWISE_EXPORT ExactSum {
 public:
  static constexpr std::size_t kNumWords = 70;
  using Words = std::array<std::int64_t, kNumWords>;

  void add(double value) noexcept;
  /// The words of two sums, added up, are those of the sum of both.
  [[nodiscard]] Words words() const noexcept;
  /// REQUIRES: the sum of the words() of fewer than 2^30 sums.
  void set_words(const Words& words) noexcept;

  /// Rounded to nearest, ties to even; infinite beyond the range of double; NaN if there was one,
  /// or infinities of both signs.
  [[nodiscard]] double value() const noexcept;

 private:
  void carry() noexcept;

  // Word i counts 2^(32 i - 1074); the last three count NaNs, positive and negative infinities.
  Words words_{};
  std::uint32_t since_carry_ = 0;
};

}  // namespace shardwise::detail

namespace shardwise {
using detail::ExactSum;
}  // namespace shardwise
