#pragma once

#include <string>

#include "ingest/build_inputs.h"

namespace shardwise {

/// Replaces the catalogue of the index at `path`, for the same shards and the same offset table.
/// The new one has the urls, times, validators and stored sources of `inputs`.
/// @return  false, without a change, if another build may remove the table meanwhile, or if the
///   table belongs to another user. It is false on file systems without locks.
/// REQUIRES: inputs.sources are all shards of inputs.old, which was opened at `path`, in its order.
/// Errors: kNoSpace, kIo.
bool rewrite_catalogue(const std::string& path, const BuildInputs& inputs, bool is_secret);

}  // namespace shardwise
