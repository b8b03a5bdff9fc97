#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace shardwise::tools {

enum class HelpLength : std::uint8_t { kShort, kWhole };

/// The help of a program or of one of its sub-commands, for the stream `fd`: description, usage,
/// arguments, commands and options by group, notes and examples. Text is folded to the terminal's
/// width; an example is broken only where a shell allows it. Titles have the style Style::kHead.
std::string help_of(const CLI::App& app, HelpLength length, int fd);

}  // namespace shardwise::tools
