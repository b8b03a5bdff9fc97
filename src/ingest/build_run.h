#pragma once

#include <string>

#include "ingest/build_inputs.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise {

/// Builds the index at `path` from the inputs: scans Rescan sources, and copies the records of
/// Reuse sources.
/// @param content  content of the index; `options.content` is ignored.
/// Effects, threads and errors: as build_index.
BuildReport run_build(const std::string& path, const BuildInputs& inputs,
                      const Index::Content& content, const BuildOptions& options);

}  // namespace shardwise
