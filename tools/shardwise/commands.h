#pragma once

#include <CLI/CLI.hpp>

#include "output.h"

namespace shardwise::tools {

// Each function adds one sub-command, which runs when the command line is parsed. It writes results
// to `out`, and everything else to standard error. It throws failures as exceptions and wrong usage
// as a CLI::ParseError.

void add_index_command(CLI::App& program, Output& out);
void add_merge_command(CLI::App& program, Output& out);
void add_attach_command(CLI::App& program, Output& out);
void add_info_command(CLI::App& program, Output& out);
void add_ls_command(CLI::App& program, Output& out);
void add_cat_command(CLI::App& program, Output& out);
void add_verify_command(CLI::App& program, Output& out);
void add_query_command(CLI::App& program, Output& out);
void add_token_command(CLI::App& program, Output& out);
void add_order_command(CLI::App& program, Output& out);
void add_explain_command(CLI::App& program, Output& out);
void add_when_command(CLI::App& program, Output& out);
void add_plan_command(CLI::App& program, Output& out);
void add_epoch_command(CLI::App& program, Output& out);
void add_export_command(CLI::App& program, Output& out);
void add_cache_command(CLI::App& program, Output& out);
/// Adds the sub-command `fill` to the command `cache`.
void add_fill_command(CLI::App& cache_command, Output& out);
void add_pack_command(CLI::App& program, Output& out);
void add_repack_command(CLI::App& program, Output& out);
void add_help_command(CLI::App& program, Output& out);
void add_version_command(CLI::App& program, Output& out);

}  // namespace shardwise::tools
