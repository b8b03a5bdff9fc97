#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ingest/build_inputs.h"
#include "ingest/reusable_index.h"

namespace shardwise {

// Recognises shards of an index that were moved or have new times.

/// Compares a shard with the donor's row. Returns the difference; nullopt if the shard counts as
/// the same. If size and time, or the validator, equal the row's, only the first 512 bytes are
/// compared. Otherwise the shard counts as the same only if `accept_times` is true and
/// quick_check() finds no difference.
/// Errors: NotFound, kIo; errors of RemoteShards.
std::optional<std::string> difference_from(const ReusableIndex& donor, const Index::Shard& row,
                                           const Rescan& now, bool accept_times);

/// Returns the donor's row with the shard's present path, time and validator.
Reuse reuse_of(const ReusableIndex& donor, const Index::Shard& row, const Rescan& now);

/// Finds local shards in `sources` that were moved. `unnamed` has the rows of `old` that may have
/// been moved, by URL. Shards match if their sizes, times (ignored with accept_times) and first 512
/// bytes are equal. Each shard found becomes a Reuse, and its row is removed from `unnamed`. A
/// shard stays a Rescan if the match is not one to one. Without accept_times, it also stays a
/// Rescan if the old file still exists.
/// Cost: one read of 512 bytes for each shard whose size and time match; two calls of stat(2) for
///   each shard found.
/// @param options  only accept_times and cancel are used.
/// Errors: Cancelled.
void recognise(const ReusableIndex& old, const BuildOptions& options, std::vector<Source>& sources,
               std::unordered_map<std::string, Index::Shard>& unnamed);

}  // namespace shardwise
