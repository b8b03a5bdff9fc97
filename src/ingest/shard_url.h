#pragma once

#include <string>
#include <string_view>

namespace shardwise {

/// Throws Unsupported if `url` is a command: texts from outside may not name one.
/// @param where  where `url` was found, for the error text; may be empty.
void require_no_command(std::string_view url, std::string_view where);

/// Resolves a reference in a list or a descriptor to a path or a URL.
///
/// @param base   directory or directory URL that relative references begin at. A remote base allows
///   relative references, and absolute URLs of its scheme (https, too, if it is http). It refuses
///   paths on this machine, with or without `file:`.
/// @param where  where the reference was found, for error texts.
/// Errors: Unsupported for commands, and for references that a remote base refuses; InvalidArgument
///   if `url` is empty, has a zero byte, or is malformed.
std::string resolve_reference(std::string_view url, const std::string& base,
                              std::string_view where);

/// The base of relative references in the text at `path`, a path or a URL.
std::string base_of_reference(const std::string& path);

/// `path_or_url` without query and fragment. Paths and object URLs are unchanged: they have
/// neither.
std::string_view without_query(std::string_view path_or_url);

/// True unless resolve_reference would read the relative path `text` as a URL.
bool is_plain_path(std::string_view text);

}  // namespace shardwise
