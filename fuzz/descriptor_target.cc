#include <cmath>

#include "shardwise/base/error.h"
#include "shardwise/ingest/wids_descriptor.h"
#include "targets.h"

namespace shardwise::fuzz {

void descriptor_target(std::string_view input) {
  try {
    const WidsDescriptor descriptor = parse_wids_descriptor(input, "no/such/folder/d.json");
    std::uint64_t num_samples = 0;
    std::uint64_t num_shards = 0;
    for (const WidsDescriptor::Set& set : descriptor.datasets) {
      SHARDWISE_FUZZ_REQUIRE(std::isfinite(set.weight) && set.weight >= 0);
      for (const WidsDescriptor::Shard& shard : set.shards) {
        SHARDWISE_FUZZ_REQUIRE(!shard.path.empty() && shard.path.find('\0') == std::string::npos);
        SHARDWISE_FUZZ_REQUIRE(!shard.md5 || shard.md5->size() == 32);
        SHARDWISE_FUZZ_REQUIRE(shard.num_samples <= (std::uint64_t{1} << 63) - num_samples);
        num_samples += shard.num_samples;
        ++num_shards;
      }
    }
    SHARDWISE_FUZZ_REQUIRE(num_shards > 0);
  } catch (const Error&) {
    // The input may be refused.
  }
}

}  // namespace shardwise::fuzz
