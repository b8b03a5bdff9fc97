#include "shardwise/libtorch/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shardwise::libtorch {

double warm_up_cosine(std::uint64_t before, std::uint64_t step_size, std::uint64_t total,
                      double highest, double warm_up) {
  const auto all = static_cast<double>(std::max<std::uint64_t>(total, 1));
  const double done = static_cast<double>(before) / all;
  if (done < warm_up) {
    const auto after = static_cast<double>(before + step_size);
    return highest * std::min(1.0, after / (warm_up * all));
  }
  const double fallen = std::min(1.0, (done - warm_up) / (1 - warm_up));
  return highest * 0.5 * (1 + std::cos(std::numbers::pi * fallen));
}

}  // namespace shardwise::libtorch
