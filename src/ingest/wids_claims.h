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

/// Throws Mismatch if a shard's size or number of samples differs from what `descriptor` claims.
/// Errors: as check_against_descriptor().
SHARDWISE_EXPORT void require_claimed(const std::string& descriptor,
                                      const WidsDescriptor::Shard& claimed,
                                      std::uint64_t size_bytes, std::uint64_t num_samples);

/// Returns the fingerprint of the numbering that these claims define. It is a hash of the shards'
/// file names, numbers of samples, sizes and MD5 sums, in order; folders and servers do not matter.
/// It never equals the Index::fingerprint() of a built index.
SHARDWISE_EXPORT Hash128 claimed_fingerprint(const std::vector<WidsDescriptor::Shard>& shards);

/// Returns the index that index_for() would return for these sources without building. Returns
/// nullopt if that index does not exist or is not current. Checks the descriptor's claims.
/// Cost: reads no file if the index does not exist; otherwise as index_for().
SHARDWISE_EXPORT std::optional<std::string> find_current_index(SourceList sources,
                                                               const IndexCacheOptions& options);

}  // namespace shardwise::detail
