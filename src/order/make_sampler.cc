#include "shardwise/order/make_sampler.h"

#include <string>
#include <utility>

#include "order/check_options.h"
#include "shardwise/base/error.h"
#include "shardwise/order/resampled_sampler.h"
#include "shardwise/order/wids_sampler.h"

namespace shardwise {

std::unique_ptr<Sampler> make_sampler(SampleCount n, const OrderOptions& options,
                                      ShardOffsets offsets, SampleBytes bytes) {
  const bool by_shard =
      options.sampler == SamplerKind::kSharded ||
      (options.sampler == SamplerKind::kResampled && options.resample == ResampleUnit::kShard);
  if (by_shard && order_detail::checked(offsets).back() != n.value()) {
    throw InvalidArgument("the shards hold " + std::to_string(offsets->back()) + " samples, not " +
                              std::to_string(n.value()),
                          {}, "give the offsets of the same data set");
  }
  if (options.balance_bytes) {
    return std::make_unique<BalancedSampler>(n, options, std::move(bytes), std::move(offsets));
  }
  switch (options.sampler) {
    case SamplerKind::kChunked:
      return std::make_unique<ChunkedSampler>(n, options);
    case SamplerKind::kSharded:
      return std::make_unique<ShardedSampler>(std::move(offsets), options);
    case SamplerKind::kSequential:
      return std::make_unique<SequentialSampler>(n, options);
    case SamplerKind::kResampled:
      if (by_shard) return std::make_unique<ResampledSampler>(std::move(offsets), options);
      return std::make_unique<ResampledSampler>(n, options);
    case SamplerKind::kWids:
      return std::make_unique<WidsSampler>(n, options);
    case SamplerKind::kMixture:
      break;
  }
  throw InvalidArgument("a mixture needs its data sets", {}, "make a MixtureSampler of them");
}

}  // namespace shardwise
