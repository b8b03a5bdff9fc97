#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "output.h"

namespace shardwise::tools {

// Argument handling that `shardwise` and `shardwise-train` share.

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitWrongUsage = 2;

/// Adds the options that each command has: -h, --help and --color. Call it after all commands were
/// added.
void add_usual_options(CLI::App& program);

/// Parses the command line of `program`, and runs the callbacks of the given commands. From now on,
/// messages begin with the program's name.
///
/// Help and versions go to `out`, flushed. If a command is missing, the list of commands goes to
/// standard error. Other wrong usage is reported on standard error, in one line that names the
/// argument and the command that shows help:
///
///     shardwise: error: no option --limt; did you mean --limit? see shardwise ls --help
///
/// @return  nullopt if the program should continue: the arguments are valid, and callbacks have
///          run. Otherwise the exit code: 0, or 2 for wrong usage.
/// Errors: those of callbacks; those of `out`, e.g. when help does not fit on the disk.
std::optional<int> parse_command_line(CLI::App& program, int argc, const char* const* argv,
                                      Output& out);

/// Returns the candidate that `name` most likely means: a candidate in which at most a third of the
/// letters is mistyped, or one letter of 2. Swapped neighbours are one mistake. Otherwise, if
/// `name` has 3 or more letters, returns the only candidate that begins with `name`.
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& names);

/// Returns "; did you mean <name>?", or ";" without a near name.
std::string suggestion(std::string_view name, const std::vector<std::string>& names);

/// Returns the names of the sub-commands of `app`.
std::vector<std::string> command_names(const CLI::App& app);

/// Returns the sub-command of `program` with this path of names, e.g. {"cache", "prune"}.
/// Errors: CLI::ExtrasError with the unknown word.
CLI::App& find_command(CLI::App& program, const std::vector<std::string>& words);

}  // namespace shardwise::tools
