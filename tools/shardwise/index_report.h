#pragma once

#include <string>
#include <vector>

#include "output.h"
#include "shardwise/ingest/index_builder.h"

namespace shardwise::tools {

/// Prints the report of a build: a line and notes, or one JSON object.
/// @param left_out  files in the sources' folders that are not shards.
void report_build(const std::string& index, const BuildReport& report,
                  std::vector<std::string> left_out, double seconds, bool is_json, Output& out);

/// Prints the plan of a build: a table and a note, or one JSON object.
void report_plan(const std::string& index, const BuildPlan& plan, bool is_json, bool has_header,
                 Output& out);

}  // namespace shardwise::tools
