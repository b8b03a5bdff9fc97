#pragma once

#include <string>
#include <string_view>

namespace shardwise {

/// The token in the file at `path`: its first line, without the blanks around it.
/// @param what  names the token in texts: "bearer token".
/// Errors: InvalidArgument if the file cannot be read, or its first line is no token. The text
///   holds nothing of the file's content.
std::string read_token(const std::string& path, std::string_view what);

}  // namespace shardwise
