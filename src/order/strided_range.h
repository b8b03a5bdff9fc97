#pragma once

#include <algorithm>
#include <cstdint>

#include "order/arithmetic.h"

namespace shardwise::detail {

/// The `count` numbers first, first + stride, first + 2 * stride, ...
/// REQUIRES: stride > 0; each number fits into 64 bits.
struct StridedRange {
  std::uint64_t first = 0;
  std::uint64_t stride = 1;
  std::uint64_t count = 0;

  [[nodiscard]] std::uint64_t operator[](std::uint64_t index) const noexcept {
    return first + index * stride;
  }
  /// The number of elements below `number`.
  [[nodiscard]] std::uint64_t count_below(std::uint64_t number) const noexcept {
    return number <= first ? 0 : std::min(count, ceil_div(number - first, stride));
  }
  /// True if an element, modulo `modulus`, is in [begin, begin + size).
  /// REQUIRES: stride divides modulus, or is a multiple of it; begin + size <= modulus.
  [[nodiscard]] bool meets(std::uint64_t modulus, std::uint64_t begin,
                           std::uint64_t size) const noexcept {
    if (count == 0) return false;
    const std::uint64_t rest = first % modulus;
    if (rest >= begin && rest - begin < size) return true;
    // The stride is then a multiple of `modulus`, so all elements have the same remainder.
    if (stride >= modulus) return false;
    // From element to element, the remainder modulo `modulus` advances by the stride. Find the next
    // remainder at or after `begin`.
    const std::uint64_t ahead = (begin + modulus - rest) % modulus;
    const std::uint64_t steps = ceil_div(ahead, stride);
    return steps < count && steps * stride - ahead < size;
  }
};

}  // namespace shardwise::detail
