#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ingest/build_inputs.h"
#include "ingest/reusable_index.h"

namespace shardwise {

// Recognises shards of an index that moved, or that have new times.

/// Returns how the shard differs from the donor's row, or nothing if it passes for the same shard.
/// If size and time, or the validator, equal the row's, the first 512 bytes are compared. Otherwise
/// the shard passes only with `accept_times`, and only if quick_check() finds no difference.
/// Errors: NotFound, kIo; those of RemoteShards.
std::optional<std::string> difference_from(const ReusableIndex& donor, const Index::Shard& row,
                                           const Rescan& now, bool accept_times);

/// The donor's row with the shard's present place, time and validator.
Reuse reuse_of(const ReusableIndex& donor, const Index::Shard& row, const Rescan& now);

/// Finds local shards in `sources` that `old` has under a name in `unnamed`. They match by size,
/// time (ignored if `accept_times`) and first 512 bytes. A shard that is found becomes a Reuse, and
/// its name is removed from `unnamed`.
/// A shard stays a Rescan if the match is not one to one. Unless `accept_times`, it also stays one
/// if the old file still exists.
/// Cost: a read of 512 bytes for each shard whose size and time match; two stat(2) for each that is
///   found.
void recognise(const ReusableIndex& old, bool accept_times, std::vector<Source>& sources,
               std::unordered_map<std::string, Index::Shard>& unnamed);

}  // namespace shardwise
