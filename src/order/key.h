#pragma once

#include <cstdint>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"

namespace shardwise::detail {

/// The purpose of a key. Different purposes have different keys, so their random draws are
/// independent. The numbers of the purposes never change. docs/formats/order.md (Keys) lists the
/// purposes, and the values that replace seed, epoch and index for some of them.
enum class KeyPurpose : std::uint64_t {
  kChunks = 1,          ///< the order of the chunks (or shards) of an epoch
  kSamples = 2,         ///< the order of the samples in one group of chunks; index: the group
  kResampled = 3,       ///< draws of samples with replacement
  kResampledShard = 4,  ///< draws of shards with replacement
  kResampledPass = 5,   ///< the order in which a drawn shard is read; index: number of earlier
                        ///< passes over it
  kMixtureBlock = 6,    ///< the order of draws within a block; index: 0 for the table, 1 for the
                        ///< blocks
  kMixturePhase = 7,    ///< the phase of each node of a mixture's tree; epoch: the node
  kMixtureDataset = 8,  ///< the seed of one data set of a mixture; index: the data set
  kAudit = 9,           ///< the hash of sample numbers in an epoch's proof
  kPhase = 10,          ///< the borders of chunks in an epoch
  kSample = 11,         ///< random choices for one sample in an epoch; see sample_key.h
  kOperation = 12,      ///< one operation on a sample or batch; index: the operation
  kBatch = 13,          ///< random choices for a batch; index: the position of its first sample
  kWindow = 14,         ///< the order of the batches by length of one window; index: the window
  kRepack = 15,         ///< the order of repack(); epoch: 0
};

/// Returns a hash of the four numbers, see docs/formats/order.md. All keys are made by this
/// function. Seed and epoch are hashed separately instead of added, so (seed 0, epoch 1) and (seed
/// 1, epoch 0) give unrelated keys.
SHARDWISE_EXPORT Hash128 derive_key(std::uint64_t seed, std::uint64_t epoch, KeyPurpose purpose,
                                    std::uint64_t index = 0) noexcept;

}  // namespace shardwise::detail

namespace shardwise {
using detail::derive_key;
using detail::KeyPurpose;
}  // namespace shardwise
