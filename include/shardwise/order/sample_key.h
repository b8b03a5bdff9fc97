#pragma once

#include <cstdint>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"

namespace shardwise {

/// Returns the key from which an augmentation draws its random numbers. It depends only on the
/// seed, the epoch and the sample, not on ranks, threads or batches.
/// @param sample  the sample's number in the data set or view.
/// Cost: O(1).
SHARDWISE_EXPORT Hash128 sample_key(std::uint64_t seed, std::uint64_t epoch,
                                    std::uint64_t sample) noexcept;
/// Returns the key for orders in which a sample may occur twice in an epoch: resampled orders,
/// mixtures, and epochs longer than a pass.
/// @param position  the sample's position in the epoch.
SHARDWISE_EXPORT Hash128 sample_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample,
                                    std::uint64_t position) noexcept;

}  // namespace shardwise
