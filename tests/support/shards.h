#pragma once

#include <string>
#include <vector>

#include "support/support.h"

namespace shardwise::test {

/// Writes `num_shards` shards of `samples_per_shard` samples into `dir`. Returns their paths.
/// Sample i, counted over all shards, has the key "s<i, 6 digits>" and the fields txt, "text <i>",
/// and cls, "<i % 10>".
std::vector<std::string> write_shards(const TempDir& dir, int num_shards, int samples_per_shard,
                                      const std::string& prefix = "train");

/// Returns the bytes of a shard with one sample, whose field "txt" is "text of <key>".
std::string tar_of(const std::string& key);

/// Returns the name of the offset table of an index in `dir`; empty if it has no table.
std::string table_of(const TempDir& dir, const std::string& index);

}  // namespace shardwise::test
