#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ingest/build_inputs.h"
#include "ingest/reusable_index.h"

namespace shardwise {

// Shards that an index has, at other places or with other times than it knows them by.

/// The difference that shows that the shard is not the one that `donor` has in this row; nothing if
/// it is taken for it. If size and time, or the validator, are those of the row, the first 512
/// bytes are compared. Otherwise the shard is accepted only with `accept_times`, and only if
/// quick_check() finds nothing.
/// Errors: NotFound, kIo; those of RemoteShards.
std::optional<std::string> difference_from(const ReusableIndex& donor, const Index::Shard& row,
                                           const Rescan& now, bool accept_times);

/// The shard as the index is to have it from now on: with its present place and time.
Reuse reuse_of(const ReusableIndex& donor, const Index::Shard& row, const Rescan& now);

/// Looks among `sources` for local shards that `old` has by a name in `unnamed`: of the same size,
/// time (any, if `accept_times`) and first 512 bytes. A shard that is found becomes a Reuse, and
/// its name is removed from `unnamed`. A shard is read instead where the match is not one to one,
/// and, unless `accept_times`, where its double is still at the place that `old` has.
/// Cost: one read of 512 bytes for each shard of a size and time that one of them has, and stat(2)
/// twice for each that is found.
void recognise(const ReusableIndex& old, bool accept_times, std::vector<Source>& sources,
               std::unordered_map<std::string, Index::Shard>& unnamed);

}  // namespace shardwise
