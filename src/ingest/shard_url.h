#pragma once

#include <string>
#include <string_view>

namespace shardwise {

/// Throws Unsupported if `url` is a command, because texts from outside must not run commands.
/// @param where  where `url` was found, for the error text; may be empty.
void require_no_command(std::string_view url, std::string_view where);

/// Resolves a reference in a list or a descriptor to a path or a URL.
///
/// @param base   directory or directory URL that relative references are resolved against. A remote
///   base allows relative references and absolute URLs with its scheme (with a base of http, also
///   https). It does not allow paths on this machine, with or without `file:`.
/// @param where  where the reference was found, for error texts.
/// Errors: Unsupported for commands, and for references that a remote base does not allow;
///   InvalidArgument if `url` is empty, contains a zero byte, or is malformed.
std::string resolve_reference(std::string_view url, const std::string& base,
                              std::string_view where);

/// Returns the base for relative references in the text at `path`, which is a path or a URL.
std::string base_of_reference(const std::string& path);

/// Returns `path_or_url` without its query and fragment. Paths and object URLs are returned
/// unchanged, because they have neither.
std::string_view without_query(std::string_view path_or_url);

/// True if resolve_reference() reads the relative path `text` as a path, not as a URL.
bool is_plain_path(std::string_view text);

}  // namespace shardwise
