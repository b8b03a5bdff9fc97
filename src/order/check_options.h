#pragma once

#include <cstdint>
#include <vector>

#include "shardwise/order/epoch_order.h"
#include "shardwise/order/options.h"

namespace shardwise::order_detail {

/// Returns `options` if each of them means something to a sampler of `kind`, with or without effect
/// on this run. Errors: InvalidArgument, naming the option and the samplers it is for.
const OrderOptions& checked(SamplerKind kind, const OrderOptions& options);

/// Returns the offsets. Errors: InvalidArgument if they are no such list.
const std::vector<std::uint64_t>& checked(const ShardOffsets& offsets);

/// What a resume token keeps of the shard lengths.
std::uint64_t layout_hash(const std::vector<std::uint64_t>& offsets);

}  // namespace shardwise::order_detail
