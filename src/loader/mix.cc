#include "loader/mix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "loader/sample_random.h"
#include "loader/stable_math.h"

// Compiled without fused multiply-add, so that the values are the same on every machine.

namespace shardwise::detail {
namespace {

/// Draws from the distribution Beta(alpha, alpha): by Jöhnk's method if alpha < 1, else by
/// rejection from the uniform distribution.
double draw_beta(double alpha, SampleRandom& random) {
  for (;;) {
    const double u = random.inside();
    const double v = random.inside();
    if (alpha >= 1) {
      if (v <= stable_exp((alpha - 1) * stable_log(4 * u * (1 - u)))) return u;
      continue;
    }
    const double x = stable_log(u) / alpha;
    const double y = stable_log(v) / alpha;
    if (stable_exp(x) + stable_exp(y) > 1) continue;
    const double distance = y - x;
    return distance > 708 ? 0 : 1 / (1 + stable_exp(distance));
  }
}

float mixed(float x, float y, float lambda, float rest) { return lambda * x + rest * y; }
std::uint8_t mixed(std::uint8_t x, std::uint8_t y, float lambda, float rest) {
  const float value = lambda * static_cast<float>(x) + rest * static_cast<float>(y) + 0.5F;
  return static_cast<std::uint8_t>(std::min(value, 255.0F));
}

/// Mixes each sample with its predecessor. Goes from the last sample to the first, so that the
/// predecessor is still unmixed.
template <class Value>
void mix_all(Value* batch, std::size_t n, std::size_t sample_size, double lambda) {
  if (n == 0) return;
  const std::vector<Value> last(batch + (n - 1) * sample_size, batch + n * sample_size);
  const auto weight = static_cast<float>(lambda);
  const auto rest = static_cast<float>(1 - lambda);
  for (std::size_t i = n; i-- > 0;) {
    Value* to = batch + i * sample_size;
    const Value* from = i > 0 ? to - sample_size : last.data();
    for (std::size_t k = 0; k < sample_size; ++k) to[k] = mixed(to[k], from[k], weight, rest);
  }
}

}  // namespace

double plan_mixup(double alpha, const Hash128& key) {
  SampleRandom random(key, Operation::kMixup);
  return draw_beta(alpha, random);
}

CutmixPlan plan_cutmix(double alpha, const ImageTransform::Size& size, const Hash128& key) {
  SampleRandom random(key, Operation::kCutmix);
  const double part = 0.5 * std::sqrt(1 - draw_beta(alpha, random));
  const auto range = [&](std::size_t length) {
    const std::size_t centre = random.below(length);
    const auto half = static_cast<std::size_t>(part * static_cast<double>(length));
    const std::size_t begin = centre - std::min(centre, half);
    return std::pair(begin, std::min(centre + half, length) - begin);
  };
  CutmixPlan plan;
  std::tie(plan.box.left, plan.box.width) = range(size.width);
  std::tie(plan.box.top, plan.box.height) = range(size.height);
  plan.lambda = 1 - static_cast<double>(plan.box.height * plan.box.width) /
                        static_cast<double>(size.height * size.width);
  return plan;
}

void mixup(float* batch, std::size_t n, std::size_t sample_size, double lambda) {
  mix_all(batch, n, sample_size, lambda);
}

void mixup(std::uint8_t* batch, std::size_t n, std::size_t sample_size, double lambda) {
  mix_all(batch, n, sample_size, lambda);
}

void cutmix(void* batch, std::size_t n, const ImageTransform::Size& size,
            ImageTransform::Layout layout, std::size_t value_bytes, const Box& box) {
  if (n == 0) return;
  const bool is_planar = layout == ImageTransform::Layout::kChannelsFirst;
  const std::size_t planes = is_planar ? 3 : 1;
  const std::size_t pixel_bytes = value_bytes * (is_planar ? 1 : 3);
  const std::size_t sample_bytes = size.height * size.width * 3 * value_bytes;
  auto* bytes = static_cast<std::uint8_t*>(batch);
  const std::vector<std::uint8_t> last(bytes + (n - 1) * sample_bytes, bytes + n * sample_bytes);
  for (std::size_t i = n; i-- > 0;) {
    std::uint8_t* to = bytes + i * sample_bytes;
    const std::uint8_t* from = i > 0 ? to - sample_bytes : last.data();
    for (std::size_t row = 0; row < planes * box.height; ++row) {
      const std::size_t plane = row / box.height;
      const std::size_t y = box.top + row % box.height;
      const std::size_t at = ((plane * size.height + y) * size.width + box.left) * pixel_bytes;
      std::memcpy(to + at, from + at, box.width * pixel_bytes);
    }
  }
}

}  // namespace shardwise::detail
