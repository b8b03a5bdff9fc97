#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// Fetches pipe:command by running the command. Use only if the user has allowed commands.
std::unique_ptr<Fetcher> make_pipe_fetcher();

/// Splits a command into words, by the rules documented at Fetchers.
/// @param url  the URL for error messages.
/// Errors: InvalidArgument for an open quote, a control character, or an empty command.
std::vector<std::string> split_command(std::string_view command, std::string_view url);

}  // namespace shardwise
