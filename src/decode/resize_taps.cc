#include "decode/resize_taps.h"

#include <algorithm>
#include <cmath>

#include "decode/pixel_kernels.h"

// This file is compiled without fused multiply-add, so that the weights are the same on every
// machine.

namespace shardwise::detail {
namespace {

struct Triangle {
  static constexpr double kSupport = 1.0;
  static double weigh(double x) {
    x = std::abs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
  }
};

struct Cubic {
  static constexpr double kSupport = 2.0;
  static double weigh(double x) {
    constexpr double a = -0.5;
    x = std::abs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
  }
};

std::int32_t to_fixed(double weight) {
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<std::int32_t>(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
}

}  // namespace

bool ResizeTaps::compute(std::size_t in, std::size_t out, std::size_t begin, std::size_t end,
                         Filter filter) {
  const Range range{in, out, begin, end, filter};
  if (range == range_) return false;
  range_ = {};  // stays invalid if an allocation fails below
  filter == Filter::kBicubic ? compute_by<Cubic>(range) : compute_by<Triangle>(range);
  range_ = range;
  return true;
}

template <class Weight>
void ResizeTaps::compute_by(const Range& range) {
  const double scale = static_cast<double>(range.in) / static_cast<double>(range.out);
  const double filter_scale = std::max(scale, 1.0);
  const double support = Weight::kSupport * filter_scale;
  const double inverse = 1.0 / filter_scale;
  const auto centre_of = [&](std::size_t i) {
    return (static_cast<double>(range.begin + i) + 0.5) * scale;
  };

  const std::size_t size = range.end - range.begin;
  first_.resize(size);
  count_.resize(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double centre = centre_of(i);
    // Round like Pillow: positive numbers to nearest, halves up.
    first_[i] = static_cast<std::size_t>(std::max(0.0, centre - support + 0.5));
    const auto behind =
        static_cast<std::size_t>(centre + support + 0.5);  // NOLINT(bugprone-incorrect-roundings)
    count_[i] = std::min(range.in, behind) - first_[i];
  }
  stride_ = *std::max_element(count_.begin(), count_.end());
  weights_.assign(stride_ * size, 0);
  exact_.resize(stride_);
  for (std::size_t i = 0; i < size; ++i) {
    const double centre = centre_of(i);
    double sum = 0;
    for (std::size_t j = 0; j < count_[i]; ++j) {
      exact_[j] = Weight::weigh((static_cast<double>(j + first_[i]) - centre + 0.5) * inverse);
      sum += exact_[j];
    }
    std::int32_t* weights = weights_.data() + i * stride_;
    for (std::size_t j = 0; j < count_[i]; ++j) {
      weights[j] = to_fixed(sum != 0 ? exact_[j] / sum : exact_[j]);
    }
  }
}

}  // namespace shardwise::detail
