#include "loader/stable_math.h"

#include <cmath>

// Compiled without fused multiply-add, so that the bits are the same on every machine.

namespace shardwise::detail {
namespace {

constexpr double kLn2 = 0.693147180559945309417;
constexpr double kSqrtHalf = 0.707106781186547524401;

}  // namespace

double stable_log(double x) noexcept {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // in [0.5, 1)
  if (m < kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1);
  const double square = t * t;
  double sum = 0;
  for (int k = 12; k >= 0; --k) sum = sum * square + 1.0 / (2 * k + 1);
  return exponent * kLn2 + 2 * t * sum;
}

double stable_exp(double x) noexcept {
  if (x < -708) return 0;
  const double twos = std::floor(x / kLn2 + 0.5);
  const double rest = x - twos * kLn2;
  double sum = 1;
  for (int k = 16; k >= 1; --k) sum = sum * rest / k + 1;
  return std::ldexp(sum, static_cast<int>(twos));
}

double round_to_even(double x) noexcept {
  const double below = std::floor(x);
  const double part = x - below;
  if (part != 0.5) return part < 0.5 ? below : below + 1;
  return std::fmod(below, 2) == 0 ? below : below + 1;
}

}  // namespace shardwise::detail
