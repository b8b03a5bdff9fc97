#pragma once

#include <string>
#include <string_view>

namespace shardwise {

/// Throws Unsupported if `url` names a command: texts from outside never do. `where` says who names
/// it, and may be empty.
void require_no_command(std::string_view url, std::string_view where);

/// Resolves a reference in a list or a descriptor: to a path, or to the URL of something remote.
///
/// @param base   where relative references begin: a directory, or the URL of one. In a remote one
///   references stay with its kind: what is relative to it, and absolute URLs of the same scheme
///   (https for http, too). A path on this machine, `file:` or not, is refused there.
/// @param where  who names it, for error texts.
/// Errors: Unsupported for commands and for what a remote text may not name; InvalidArgument if it
///   is empty, holds a zero byte, or is a malformed URL.
std::string resolve_reference(std::string_view url, const std::string& base,
                              std::string_view where);

/// Where references in the text at `path`, or URL, begin.
std::string base_of_reference(const std::string& path);

/// `path_or_url` without query and fragment, which paths and URLs of objects do not have.
std::string_view without_query(std::string_view path_or_url);

/// True unless resolve_reference would read the relative path `text` as a URL.
bool is_plain_path(std::string_view text);

}  // namespace shardwise
