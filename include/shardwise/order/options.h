#pragma once

#include <cstdint>
#include <string_view>

#include "shardwise/base/export.h"
#include "shardwise/order/partition.h"
#include "shardwise/order/skip_list.h"

namespace shardwise {

enum class SamplerKind : std::uint8_t {
  kChunked,     ///< ranges of chunk_size samples are permuted, then the samples inside
  kSharded,     ///< the same with whole shards as chunks
  kSequential,  ///< sample 0, 1, 2 ...
  kResampled,   ///< with replacement; not exact
  kWids,        ///< the order of Python wids, bit for bit
  kMixture,     ///< several data sets with weights (MixtureSampler only)
};

/// "chunked", "sharded", "sequential", "resampled", "wids", "mixture".
SHARDWISE_EXPORT std::string_view sampler_name(SamplerKind kind) noexcept;
/// All but "mixture". Errors: InvalidArgument, with the valid names.
SHARDWISE_EXPORT SamplerKind parse_sampler(std::string_view name);

/// What one draw of the resampled mode takes.
enum class ResampleUnit : std::uint8_t { kSample, kShard };

inline constexpr std::uint64_t kDefaultChunkSize = 1000;

/// Everything that decides an order. The same names as on the command line. No option is ignored: a
/// sampler that has no use for one refuses any value but its default; only `seed`, `epoch` and
/// `shuffle` may be given to every sampler.
struct OrderOptions {
  SamplerKind sampler =
      SamplerKind::kChunked;  ///< for make_sampler; the classes know their own kind
  std::uint64_t rank = 0;
  std::uint64_t world_size = 1;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t chunk_size = kDefaultChunkSize;  ///< samples; chunked and wids
  std::uint64_t window = 1;                      ///< chunks mixed together; chunked and sharded
  std::uint64_t streams = 1;                     ///< see Streams
  Tail tail = Tail::kExact;
  bool shuffle = true;         ///< false: chunked, sharded and wids give 0, 1, 2 ... too
  bool shufflefirst = false;   ///< wids: also permute the chunks of epoch 0
  bool balance_bytes = false;  ///< see BalancedSampler
  ResampleUnit resample = ResampleUnit::kSample;  ///< resampled
  std::uint64_t epoch_size = 0;  ///< resampled and mixture: slots of all ranks; 0: num_samples
  SkipList skip{};
};

}  // namespace shardwise
