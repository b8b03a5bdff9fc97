#pragma once

#include <string>
#include <string_view>

namespace shardwise {

/// Throws Unsupported if `url` names a command or something on another machine. `where` says who
/// names it, and may be empty.
void require_local(std::string_view url, std::string_view where);

/// The path that a descriptor's URL stands for: `url` itself, or what a `file:` URL holds, relative
/// to `directory` if it is relative.
/// Errors: Unsupported as above; InvalidArgument if it is empty, holds a zero byte, or is a
///   malformed file: URL.
std::string path_of_url(std::string_view url, const std::string& directory, std::string_view where);

/// True unless path_of_url would read the relative path `text` as another kind of URL.
bool is_plain_path(std::string_view text);

}  // namespace shardwise
