#pragma once

#include "shardwise/base/export.h"

// Logarithm and exponential from additions, multiplications and divisions alone, each rounded: the
// same bits on every machine, unlike those of C libraries. docs/formats/transforms.md, Functions.

namespace shardwise::detail {

/// REQUIRES: x is positive and finite. The error is a few units of the last place.
SHARDWISE_EXPORT double stable_log(double x) noexcept;
/// Below -708 it is 0. REQUIRES: x < 709.
SHARDWISE_EXPORT double stable_exp(double x) noexcept;
/// The nearest whole number, of two the even one, as Python's round(). REQUIRES: 0 <= x < 2^52.
SHARDWISE_EXPORT double round_to_even(double x) noexcept;

}  // namespace shardwise::detail
