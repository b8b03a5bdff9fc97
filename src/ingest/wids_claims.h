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

/// Throws Mismatch unless a shard has the size and the samples that `descriptor` claims.
/// Errors: as check_against_descriptor().
SHARDWISE_EXPORT void require_claimed(const std::string& descriptor,
                                      const WidsDescriptor::Shard& claimed,
                                      std::uint64_t size_bytes, std::uint64_t num_samples);

/// The fingerprint of the numbering that these claims define. It hashes the shards' file names,
/// samples, sizes and md5 sums, in order; the folder or server does not matter. It never equals the
/// Index::fingerprint() of an index that was built.
SHARDWISE_EXPORT Hash128 claimed_fingerprint(const std::vector<WidsDescriptor::Shard>& shards);

/// Returns the index that index_for() would return for these sources without building. Returns
/// nothing if that index does not exist, or is not current. Checks the claims.
/// Cost: reads no file if it does not exist, else as index_for().
SHARDWISE_EXPORT std::optional<std::string> find_current_index(SourceList sources,
                                                               const IndexCacheOptions& options);

}  // namespace shardwise::detail
