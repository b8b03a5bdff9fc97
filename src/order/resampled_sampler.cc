#include "order/resampled_sampler.h"

#include <cmath>

#include "shardwise/base/error.h"

namespace shardwise::detail {

namespace {

const Order& checked_resampled(const Order& order) {
  if (std::holds_alternative<Resampled>(order.kind)) return order;
  throw InvalidArgument("the order is not a resampled one", {},
                        "give an order whose kind is Resampled");
}

}  // namespace

ResampledSampler::ResampledSampler(const SampleSet& samples, const Order& order,
                                   const RankOptions& ranks)
    : SlotSampler(samples, checked_resampled(order), ranks) {}

double ResampledSampler::expected_coverage(std::uint64_t num_draws, std::uint64_t num_samples) {
  if (num_samples == 0 || num_draws == 0) return 0;  // log1p(-1) * 0 is no number
  const auto n = static_cast<double>(num_samples);
  return -std::expm1(static_cast<double>(num_draws) * std::log1p(-1.0 / n));
}

}  // namespace shardwise::detail
