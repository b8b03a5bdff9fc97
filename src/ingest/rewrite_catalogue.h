#pragma once

#include <string>

#include "ingest/build_inputs.h"

namespace shardwise {

/// Replaces the catalogue of the index at `path`, and keeps its shards and its offset table. The
/// new catalogue has the URLs, times, validators and stored sources of `inputs`.
/// @return  false if another build may remove the table during the call, or if the table belongs to
///   another user; nothing is changed then. Always false on file systems without locks.
/// REQUIRES: inputs.old was opened at `path`, and inputs.sources are all shards of that index, in
///   the same order.
/// Errors: kNoSpace, kIo.
bool rewrite_catalogue(const std::string& path, const BuildInputs& inputs, bool is_secret);

}  // namespace shardwise
