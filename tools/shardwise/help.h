#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "help_page.h"

namespace shardwise::tools {

/// A page as text, folded to `width`: description, usage, arguments, options by group, commands by
/// group, notes and examples. An example is broken only where a shell allows it.
std::string to_text(const HelpPage& page, std::size_t width);

/// The help of a program or of one of its sub-commands, for standard output.
std::string help_of(const CLI::App& app);

}  // namespace shardwise::tools
