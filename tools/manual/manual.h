#pragma once

#include <map>
#include <string>
#include <vector>

#include "help_page.h"

namespace shardwise::tools {

/// Returns the page cli.md. A group of options that several commands share has its own section.
std::string markdown(const std::vector<HelpTree>& programs);

/// Returns manual pages by file name: "shardwise.1", and one page per command of a program. A
/// command's page has a section per subcommand.
/// @param version  version of the programs, e.g. "0.1.0".
std::map<std::string, std::string> man_pages(const std::vector<HelpTree>& programs,
                                             const std::string& version);

/// Returns a bash script that completes the command line of `program`. It needs no other files.
std::string bash_completion(const HelpTree& program);

/// Returns the completion for zsh: an autoloaded function.
std::string zsh_completion(const HelpTree& program);

/// Returns the completion for fish, with a description of each command and option.
std::string fish_completion(const HelpTree& program);

/// Returns the programs' exit codes and their meanings.
const std::vector<std::pair<int, std::string>>& exit_codes();

}  // namespace shardwise::tools
