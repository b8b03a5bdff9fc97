#pragma once

#include <string>

#include "ingest/build_inputs.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {

/// Makes the index at `path` of the inputs: scans what is to be read, takes over the rest.
/// @param content  what the index is to hold; `options.content` is not looked at.
/// Effects, threads and errors: as build_index.
BuildReport run_build(const std::string& path, const BuildInputs& inputs,
                      const Index::Content& content, const BuildOptions& options);

}  // namespace shardwise
