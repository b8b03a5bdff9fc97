#pragma once

#include <memory>

#include "shardwise/base/export.h"
#include "shardwise/order/balanced_sampler.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// The sampler that `options` describe, for n samples. `offsets` is wanted for sharded, and for
/// resampled by shard; it may be given for every other kind. `bytes` is wanted with balance_bytes.
/// Errors: InvalidArgument, naming the option and what is valid.
SHARDWISE_EXPORT std::unique_ptr<Sampler> make_sampler(SampleCount n, const OrderOptions& options,
                                                       ShardOffsets offsets = nullptr,
                                                       SampleBytes bytes = nullptr);

}  // namespace shardwise
