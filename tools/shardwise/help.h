#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "help_page.h"

namespace shardwise::tools {

/// Returns a page as text, folded to `width`: description, usage, arguments, options by group,
/// commands by group, notes and examples. Breaks an example only where a shell allows it.
std::string to_text(const HelpPage& page, std::size_t width);

/// Returns the help of a program or of one of its sub-commands, for standard output.
std::string help_of(const CLI::App& app);

}  // namespace shardwise::tools
