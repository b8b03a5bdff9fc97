#pragma once

#include <cstdint>

#include "index/offset_table.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"

namespace shardwise {
namespace detail {

/// The records of a shard, checked in full at each call.
/// Errors: OutOfRange; CorruptIndex.
/// Cost: O(members of the shard); keep the view.
SHARDWISE_EXPORT SegmentView segment_of(const Index& index, std::uint64_t shard);

}  // namespace detail

using detail::segment_of;

}  // namespace shardwise
