#pragma once

#include <string>

#include "ingest/build_inputs.h"

namespace shardwise {

/// Replaces the catalogue of the index at `path` by one of the same shards and the same offset
/// table, in which shards have the urls, times and validators of `inputs`, and the words are those
/// of `inputs`.
/// @return  false, and the index is unchanged, if the table might be removed meanwhile (another
///          build is running, or the file system has no locks that would tell), or is another
///          user's.
/// REQUIRES: inputs.sources are all shards of inputs.old, which was opened at `path`, in its order.
/// Errors: kNoSpace, kIo.
bool rewrite_catalogue(const std::string& path, const BuildInputs& inputs, bool is_secret);

}  // namespace shardwise
