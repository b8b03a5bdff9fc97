#include "order/check_options.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"

namespace shardwise::order_detail {

namespace {

/// Refuses an option that is not at its default and means nothing to `kind`.
void require(bool is_default_or_used, SamplerKind kind, std::string_view option,
             std::string_view used_by) {
  if (is_default_or_used) return;
  throw InvalidArgument(
      std::string(option) + " means nothing to the " + std::string(sampler_name(kind)) + " sampler",
      {}, "it is for " + std::string(used_by) + "; leave it at its default");
}

}  // namespace

const OrderOptions& checked(SamplerKind kind, const OrderOptions& options) {
  const OrderOptions defaults;
  const bool chunked = kind == SamplerKind::kChunked;
  const bool sharded = kind == SamplerKind::kSharded;
  const bool sequential = kind == SamplerKind::kSequential;
  const bool resampled = kind == SamplerKind::kResampled;
  const bool mixture = kind == SamplerKind::kMixture;
  const bool wids = kind == SamplerKind::kWids;
  if (options.chunk_size == 0) {
    throw InvalidArgument("chunk_size is 0 samples", {}, "it is at least 1, and 1000 is usual");
  }
  if (options.window == 0) {
    throw InvalidArgument("window is 0 chunks", {},
                          "it is at least 1; 1 shuffles inside each chunk, more mixes that many");
  }
  require(chunked || wids || options.chunk_size == defaults.chunk_size, kind, "chunk_size",
          "chunked and wids");
  require(chunked || sharded || options.window == defaults.window, kind, "window",
          "chunked and sharded");
  require((!wids && !mixture) || options.streams == defaults.streams, kind, "streams",
          "chunked, sharded, sequential and resampled");
  require(chunked || sharded || sequential || options.tail == defaults.tail, kind, "tail",
          "chunked, sharded and sequential");
  require(wids || options.shufflefirst == defaults.shufflefirst, kind, "shufflefirst", "wids");
  if (options.balance_bytes) {
    throw InvalidArgument("balance_bytes without the sizes of the samples", {},
                          "use BalancedSampler, or make_sampler with sizes");
  }
  require(resampled || options.resample == defaults.resample, kind, "resample", "resampled");
  require(resampled || mixture || options.epoch_size == defaults.epoch_size, kind, "epoch_size",
          "resampled and mixture");
  require(chunked || sharded || sequential || options.skip.empty(), kind, "skip",
          "chunked, sharded and sequential");
  require((!resampled && !mixture) || options.shuffle, kind, "shuffle = false",
          "chunked, sharded, sequential and wids");
  return options;
}

const std::vector<std::uint64_t>& checked(const ShardOffsets& offsets) {
  if (!offsets || offsets->empty() || offsets->front() != 0 ||
      !std::is_sorted(offsets->begin(), offsets->end()) || offsets->back() > kMaxSamples) {
    throw InvalidArgument("not a list of shard offsets", {},
                          "it holds the first sample of each shard, then the number of samples: "
                          "ascending, the first 0");
  }
  return *offsets;
}

std::uint64_t layout_hash(const std::vector<std::uint64_t>& offsets) {
  return hash64(
      {reinterpret_cast<const char*>(offsets.data()), offsets.size() * sizeof(offsets[0])});
}

}  // namespace shardwise::order_detail
