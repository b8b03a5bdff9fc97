#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/ingest/index_cache.h"
#include "shardwise/ingest/source_list.h"
#include "shardwise/ingest/wids_descriptor.h"

namespace shardwise::detail {

/// Throws Mismatch, as check_against_descriptor() does, unless a shard is what `descriptor` claims.
SHARDWISE_EXPORT void require_claimed(const std::string& descriptor,
                                      const WidsDescriptor::Shard& claimed,
                                      std::uint64_t size_bytes, std::uint64_t num_samples);

/// The fingerprint of the numbering that these claims make: of the shards' file names, samples,
/// sizes and md5 sums, in their order. The folder or server does not matter. It is none that
/// Index::fingerprint() has of an index that was built.
SHARDWISE_EXPORT Hash128 claimed_fingerprint(const std::vector<WidsDescriptor::Shard>& shards);

/// The index in the folder that index_for() would return for these sources without building it:
/// nothing if it is not there, or not current. Claims are checked.
/// Cost: nothing if it is not there; otherwise as index_for(). Errors: Mismatch; Cancelled.
SHARDWISE_EXPORT std::optional<std::string> find_current_index(SourceList sources,
                                                               const IndexCacheOptions& options);

}  // namespace shardwise::detail
