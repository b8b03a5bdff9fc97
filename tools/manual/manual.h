#pragma once

#include <map>
#include <string>
#include <vector>

#include "help_page.h"

namespace shardwise::tools {

/// The page cli.md. A group of options that several commands have comes once, in a section of
/// its own.
std::string markdown(const std::vector<HelpTree>& programs);

/// Manual pages by file name: "shardwise.1", and one for each command of a program, in which the
/// commands below that are sections.
/// @param version  of the programs, as "0.1.0".
std::map<std::string, std::string> man_pages(const std::vector<HelpTree>& programs,
                                             const std::string& version);

/// A script that tells bash how the command line of `program` is completed. Needs bash alone.
std::string bash_completion(const HelpTree& program);

/// The same for zsh: an autoloaded function of its completion system.
std::string zsh_completion(const HelpTree& program);

/// What the programs exit with, and what that means.
const std::vector<std::pair<int, std::string>>& exit_codes();

}  // namespace shardwise::tools
