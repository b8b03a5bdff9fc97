#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "output.h"

namespace shardwise::tools {

// What `shardwise` and `shardwise-train` have in common in how they take their arguments.

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitWrongUsage = 2;

/// Parses the command line of `program`, whose name messages begin with from now on, and runs the
/// callbacks of its commands.
///
/// Help, folded to the terminal's width, and versions go to `out`, flushed. Wrong usage is said on
/// standard error in one line that names the argument and where help is:
///
///     shardwise: error: no option --limt; did you mean --limit? see shardwise ls --help
///
/// @return  nothing if the program is to go on: all was right, and callbacks have run. Otherwise
///          what to exit with: 0, or 2 for wrong usage.
/// Errors: those of callbacks; those of `out`, as when help does not fit on the disk.
std::optional<int> parse_command_line(CLI::App& program, int argc, const char* const* argv,
                                      Output& out);

/// The name that is most like `name`, if one is near enough to be what was meant: at most a third
/// of it mistyped, where an exchange of neighbours is one mistake; or, of 3 characters on, the only
/// one that begins with `name`.
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& names);

/// "; did you mean <name>?", or ";".
std::string suggestion(std::string_view name, const std::vector<std::string>& names);

/// The names of the sub-commands of `app`.
std::vector<std::string> command_names(const CLI::App& app);

/// The sub-command of `program` called by these words, as {"cache", "prune"}.
/// Errors: CLI::ExtrasError, whose text names the word that is none.
CLI::App& find_command(CLI::App& program, const std::vector<std::string>& words);

}  // namespace shardwise::tools
