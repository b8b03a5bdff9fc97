#pragma once

#include <cstdint>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"

namespace shardwise {

/// The key from which an augmentation draws its random numbers: a function of the run's seed, the
/// epoch and the sample, so it is the same on any number of ranks and threads, and in any batch.
/// Cost: about 10 ns.
/// @param sample  its number in the data set; in a view, its number there.
SHARDWISE_EXPORT Hash128 sample_key(std::uint64_t seed, std::uint64_t epoch,
                                    std::uint64_t sample) noexcept;
/// For an order in which a sample may come twice in an epoch: resampled, mixture, epochs longer
/// than a pass.
/// @param position  the sample's position in the epoch.
SHARDWISE_EXPORT Hash128 sample_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample,
                                    std::uint64_t position) noexcept;

}  // namespace shardwise
