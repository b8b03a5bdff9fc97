#pragma once

#include <string>
#include <string_view>

namespace shardwise::tools {

/// An error text of the library, in words of the command line. Names of C++ options (`chunk_size`,
/// `Fetchers::Options::allow_pipe`) become its options (--chunk, --allow-pipe). Advice that only a
/// C++ program can follow is dropped. Quoted parts, e.g. file names, stay unchanged.
std::string with_option_names(std::string_view text);

}  // namespace shardwise::tools
