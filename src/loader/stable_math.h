#pragma once

#include "shardwise/base/export.h"

// Logarithm and exponential from additions, multiplications and divisions, each rounded. Results
// have the same bits on every machine, unlike those of C libraries. Specified in
// docs/formats/transforms.md (Functions).

namespace shardwise::detail {

/// REQUIRES: x is positive and finite. The error is a few units in the last place.
SHARDWISE_EXPORT double stable_log(double x) noexcept;
/// Returns 0 for x < -708. REQUIRES: x < 709.
SHARDWISE_EXPORT double stable_exp(double x) noexcept;
/// Returns the nearest integer, ties to even, like Python's round(). REQUIRES: 0 <= x < 2^52.
SHARDWISE_EXPORT double round_to_even(double x) noexcept;

}  // namespace shardwise::detail
