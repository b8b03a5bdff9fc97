#pragma once

#include <string>
#include <string_view>

namespace shardwise::tools {

/// An error text of the library, in which what C++ calls an option (`chunk_size`,
/// `Fetchers::Options::allow_pipe`) is replaced by what the command line calls it (--chunk,
/// --allow-pipe), and advice that only a C++ program can follow is left out. What stands in quotes,
/// as the names of files do, stays as it is.
std::string with_option_names(std::string_view text);

}  // namespace shardwise::tools
