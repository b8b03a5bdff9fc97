#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/storage/fetcher.h"

namespace shardwise {

/// For pipe:command. Runs what the URL says: only for those who allowed it.
std::unique_ptr<Fetcher> make_pipe_fetcher();

/// The words of a command, by the rules at Fetchers. `url` is for the error text.
/// Errors: InvalidArgument for an open quote, a control character, or no word at all.
std::vector<std::string> split_command(std::string_view command, std::string_view url);

}  // namespace shardwise
